#include "base/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace focus {

namespace {

std::string join(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

template <typename T>
std::optional<T> parse_number(const std::string& text) {
  T number{};
  const char* begin = text.data();
  const char* end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || stop != end || begin == end) return std::nullopt;
  return number;
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  size_t begin = 0;
  while (true) {
    const size_t comma = text.find(',', begin);
    std::string part = text.substr(begin, comma - begin);
    const size_t first = part.find_first_not_of(' ');
    const size_t last = part.find_last_not_of(' ');
    parts.push_back(first == std::string::npos ? "" : part.substr(first, last - first + 1));
    if (comma == std::string::npos) return parts;
    begin = comma + 1;
  }
}

/// "--groups_per_token=3" -> "--groups-per-token=3"; anything that is no long flag stays as it is.
std::string with_dashes(std::string argument) {
  if (argument.size() < 3 || argument.compare(0, 2, "--") != 0) return argument;
  const size_t end = std::min(argument.find('='), argument.size());
  std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return argument;
}

}  // namespace

namespace detail {

template <>
std::pair<std::string, std::string> describe_type<int64_t>() {
  return {"an integer", "N"};
}
template <>
std::pair<std::string, std::string> describe_type<double>() {
  return {"a number", "X"};
}
template <>
std::pair<std::string, std::string> describe_type<std::string>() {
  return {"text", "TEXT"};
}
template <>
std::pair<std::string, std::string> describe_type<std::filesystem::path>() {
  return {"a path", "PATH"};
}
template <>
std::pair<std::string, std::string> describe_type<bool>() {
  return {"true or false", ""};
}

}  // namespace detail

Option& Option::at_least(double bound) {
  low_ = bound;
  low_open_ = false;
  return *this;
}
Option& Option::at_most(double bound) {
  high_ = bound;
  high_open_ = false;
  return *this;
}
Option& Option::above(double bound) {
  low_ = bound;
  low_open_ = true;
  return *this;
}
Option& Option::below(double bound) {
  high_ = bound;
  high_open_ = true;
  return *this;
}
Option& Option::one_of(std::vector<std::string> choices) {
  choices_ = std::move(choices);
  value_name_ = "NAME";
  return *this;
}
Option& Option::required() {
  required_ = true;
  return *this;
}
Option& Option::repeatable() {
  repeatable_ = true;
  return *this;
}
Option& Option::value_name(std::string name) {
  value_name_ = std::move(name);
  return *this;
}
Option& Option::default_text(std::string text) {
  default_text_ = std::move(text);
  return *this;
}
Option& Option::short_flag(char letter) {
  short_ = letter;
  return *this;
}
Option& Option::unrecorded() {
  recorded_ = false;
  return *this;
}

bool Option::in_limits(double number) const {
  if (!std::isfinite(number)) return false;
  if (low_ && (low_open_ ? number <= *low_ : number < *low_)) return false;
  if (high_ && (high_open_ ? number >= *high_ : number > *high_)) return false;
  return true;
}

template <>
std::optional<int64_t> Option::parse<int64_t>(const std::string& text) const {
  std::optional<int64_t> number = parse_number<int64_t>(text);
  if (number && !in_limits(static_cast<double>(*number))) return std::nullopt;
  return number;
}
template <>
std::optional<double> Option::parse<double>(const std::string& text) const {
  std::optional<double> number = parse_number<double>(text);
  if (number && !in_limits(*number)) return std::nullopt;
  return number;
}
template <>
std::optional<std::string> Option::parse<std::string>(const std::string& text) const {
  if (!choices_.empty() && std::find(choices_.begin(), choices_.end(), text) == choices_.end()) return std::nullopt;
  return text;
}
template <>
std::optional<std::filesystem::path> Option::parse<std::filesystem::path>(const std::string& text) const {
  if (text.empty()) return std::nullopt;
  std::filesystem::path path(text);
  // "DIR/" is DIR: the last component must name something.
  if (!path.has_filename() && path.has_relative_path()) path = path.parent_path();
  return path;
}
template <>
std::optional<bool> Option::parse<bool>(const std::string& text) const {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::string Option::expectation() const {
  std::string text;
  if (!choices_.empty()) {
    text = (is_list_ ? "a comma list out of " : "one of ") + join(choices_);
  } else {
    text = is_list_ && !repeatable_ ? "a comma list, each " + kind_ : kind_;
    const std::string low = low_ ? fmt::format(" {} {}", low_open_ ? "above" : "of at least", *low_) : "";
    const std::string high = high_ ? fmt::format(" {} {}", high_open_ ? "below" : "at most", *high_) : "";
    text += low + (low_ && high_ ? " and" : "") + high;
  }
  return text;
}

void Option::assign(const std::vector<std::string>& texts, const std::string& where) {
  if (!set_(texts)) {
    const std::string nearest = texts.size() == 1 && !choices_.empty() ? nearest_name(texts.front(), choices_) : "";
    fail_usage("{}: expected {}{}", where, expectation(),
               nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
  }
  given_ = true;
}

OptionTable::OptionTable(std::string command, std::string summary)
    : command_(std::move(command)), summary_(std::move(summary)), section_("Options") {}

void OptionTable::section(std::string title) {
  section_ = std::move(title);
}

Option& OptionTable::declare(std::string name, std::string help) {
  require(find(name) == nullptr, "option --{} of '{}' is declared twice", name, command_);
  options_.push_back(std::make_unique<Option>());
  Option& option = *options_.back();
  option.name_ = std::move(name);
  option.help_ = std::move(help);
  option.section_ = section_;
  return option;
}

Option* OptionTable::find(std::string_view name) const {
  for (const auto& option : options_) {
    if (option->name_ == name) return option.get();
  }
  return nullptr;
}

bool OptionTable::given(std::string_view name) const {
  const Option* option = find(name);
  require(option != nullptr, "option --{} of '{}' is not declared", name, command_);
  return option->given();
}

bool OptionTable::changed(std::string_view name) const {
  return given(name) && find(name)->value() != find(name)->default_;
}

std::vector<std::string> OptionTable::flag_names() const {
  std::vector<std::string> names = {"--help", "--config"};
  for (const auto& option : options_) {
    if (option->positional_) continue;
    names.push_back("--" + option->name_);
    if (option->is_switch_) names.push_back("--no-" + option->name_);
  }
  return names;
}

void OptionTable::fail_unknown_flag(const std::string& flag) const {
  const std::string name = flag.substr(0, flag.find('='));
  const std::string nearest = nearest_name(name, flag_names());
  fail_usage(
      "unknown flag {}; {}", name,
      nearest.empty() ? fmt::format("see 'focus {} --help'", command_) : fmt::format("did you mean {}?", nearest));
}

void OptionTable::parse(const std::vector<std::string>& arguments) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  CLI::Option* help_flag = app.add_flag("-h,--help");
  CLI::Option* config_flag = app.add_option("--config")->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  std::vector<std::pair<Option*, CLI::Option*>> flags;
  std::vector<std::string> takes_value = {"--config"};
  for (const auto& option : options_) {
    option->given_ = false;
    if (option->positional_) continue;
    std::string names = "--" + option->name_;
    if (option->short_ != 0) takes_value.push_back(std::string("-") + option->short_);
    if (option->short_ != 0) names += std::string(",-") + option->short_;
    if (option->is_switch_) {
      flags.emplace_back(option.get(), app.add_flag(names + ",!--no-" + option->name_));
    } else {
      takes_value.push_back("--" + option->name_);
      flags.emplace_back(option.get(), app.add_option(names));
    }
    flags.back().second->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }

  const std::vector<std::string> known = flag_names();
  std::vector<std::string> cleaned;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      cleaned.insert(cleaned.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    cleaned.push_back(with_dashes(arguments[i]));
    const size_t equals = cleaned.back().find('=');
    const std::string name = cleaned.back().substr(0, equals);
    if (std::find(takes_value.begin(), takes_value.end(), name) == takes_value.end()) continue;
    if (equals != std::string::npos) {
      // Split here, since CLI11 takes "--name=" for a missing value instead of an empty one.
      const std::string value = cleaned.back().substr(equals + 1);
      cleaned.back() = name;
      cleaned.push_back(value);
      continue;
    }
    if (i + 1 == arguments.size()) fail_usage("{}: needs a value", cleaned.back());
    const std::string& value = arguments[++i];
    if (std::find(known.begin(), known.end(), with_dashes(value)) != known.end()) {
      fail_usage("{}: needs a value, got the flag {}", cleaned.back(), value);
    }
    cleaned.push_back(value);
  }

  std::reverse(cleaned.begin(), cleaned.end());
  try {
    app.parse(cleaned);
  } catch (const CLI::ParseError& error) {
    fail_usage("{}", error.what());
  }
  help_requested_ = help_flag->count() > 0;
  if (help_requested_) return;

  std::vector<std::string> positionals;
  bool only_positionals = false;
  for (const std::string& extra : app.remaining()) {
    if (extra == "--" && !only_positionals) {
      only_positionals = true;
    } else if (!only_positionals && extra.size() > 1 && extra[0] == '-') {
      fail_unknown_flag(extra);
    } else {
      positionals.push_back(extra);
    }
  }

  if (!config_flag->results().empty()) read_config(config_flag->results().back());
  for (const auto& [option, flag] : flags) {
    if (flag->results().empty()) continue;
    if (option->repeatable_) {
      option->assign(flag->results(), fmt::format("--{} {}", option->name_, fmt::join(flag->results(), " ")));
      continue;
    }
    const std::string& text = flag->results().back();
    const std::string where = option->is_switch_ ? "--" + option->name_ : fmt::format("--{} {}", option->name_, text);
    option->assign(option->is_list_ ? split_at_commas(text) : std::vector<std::string>{text}, where);
  }

  auto next = positionals.begin();
  for (const auto& option : options_) {
    if (!option->positional_ || next == positionals.end()) continue;
    const auto end = option->is_list_ ? positionals.end() : next + 1;
    option->assign({next, end}, fmt::format("{} {}", option->name_, fmt::join(next, end, " ")));
    next = end;
  }
  if (next != positionals.end()) {
    fail_usage("unexpected argument '{}'; see 'focus {} --help'", *next, command_);
  }
  for (const auto& option : options_) {
    if (option->required_ && !option->given_) {
      fail_usage("{}{} is needed: {}", option->positional_ ? "" : "--", option->name_, option->help_);
    }
  }
}

}  // namespace focus
