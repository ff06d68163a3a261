#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace focus {

/// One flag or positional argument of a command. Returned by OptionTable::add so that limits and help can be chained:
///     table.add("groups", &groups, "lists a head").at_least(1).at_most(4096);
class Option {
 public:
  /// Numbers (and every element of a list of numbers) must be >= `bound`.
  Option& at_least(double bound);
  Option& at_most(double bound);
  /// Numbers must be > `bound`.
  Option& above(double bound);
  Option& below(double bound);
  /// Texts (and every element of a list of texts) must be one of these.
  Option& one_of(std::vector<std::string> choices);
  /// A value must come from a flag or the config file.
  Option& required();
  /// What help calls the value (default N, X, TEXT or PATH by type).
  Option& value_name(std::string name);
  /// What help says instead of the default value, such as "as stored".
  Option& default_text(std::string text);
  /// One-letter form, such as -n.
  Option& short_flag(char letter);
  /// Of a list: each use of the flag adds one element, taken as it is, and commas have no meaning.
  Option& repeatable();
  /// Leaves the option out of the saved run record (it says nothing about the result).
  Option& unrecorded();

  const std::string& name() const { return name_; }
  /// Set by a flag or by the config file, as opposed to the default.
  bool given() const { return given_; }
  /// Present value: null for an empty optional or path, an array for a list.
  nlohmann::json value() const { return value_(); }

 private:
  friend class OptionTable;

  std::string expectation() const;
  void assign(const std::vector<std::string>& texts, const std::string& where);

  // Turn text into a value; nullopt if it is none or breaks the limits.
  template <typename T>
  std::optional<T> parse(const std::string& text) const;
  bool in_limits(double number) const;

  std::string name_;
  std::string help_;
  std::string section_;
  std::string kind_;  // "an integer", "a number", "text", "a path", "true or false"
  std::string value_name_;
  std::string default_text_;
  nlohmann::json default_;
  std::vector<std::string> choices_;
  std::optional<double> low_, high_;
  bool low_open_ = false, high_open_ = false;
  char short_ = 0;
  bool is_switch_ = false;
  bool is_list_ = false;
  bool repeatable_ = false;
  bool positional_ = false;
  bool required_ = false;
  bool recorded_ = true;
  bool given_ = false;
  std::function<bool(const std::vector<std::string>&)> set_;
  std::function<nlohmann::json()> value_;
};

template <>
std::optional<int64_t> Option::parse<int64_t>(const std::string& text) const;
template <>
std::optional<double> Option::parse<double>(const std::string& text) const;
template <>
std::optional<std::string> Option::parse<std::string>(const std::string& text) const;
template <>
std::optional<std::filesystem::path> Option::parse<std::filesystem::path>(const std::string& text) const;
template <>
std::optional<bool> Option::parse<bool>(const std::string& text) const;

/// The options of one command, declared once: parsing, help, `--config FILE` and the saved run record all come from
/// this table. Names are kebab-case; on the command line and in config files `_` and `-` are the same. Flags win over
/// the config file, the last of a repeated flag wins.
///
/// Types: int64_t, double, std::string, std::filesystem::path, bool (--x, --no-x), std::optional of these, std::vector
/// of these (comma list; a TOML array in a config file), and enums through add_choice. The target's value at the time
/// of the call is the default.
class OptionTable {
 public:
  /// `command` as it is typed after the program's name; `summary` is one sentence for help.
  OptionTable(std::string command, std::string summary);

  /// Flags declared from here on appear under this heading in help.
  void section(std::string title);

  template <typename T>
  Option& add(std::string name, T* target, std::string help);

  /// An enum with its names.
  template <typename E>
  Option& add_choice(std::string name, E* target, const std::vector<std::pair<std::string, E>>& choices,
                     std::string help);

  /// An argument without a flag, in order of declaration. A list takes all that remain.
  template <typename T>
  Option& add_positional(std::string name, T* target, std::string help);

  /// Sets the targets from the arguments (without program and command name), reading the file given by --config first.
  /// When -h or --help is among the arguments only help_requested() changes. Throws UsageError naming the flag, the
  /// value and what was expected, for an unknown flag or config key the nearest known one; Error when the config is
  /// unreadable.
  void parse(const std::vector<std::string>& arguments);

  bool help_requested() const { return help_requested_; }
  /// Whether this option was set by a flag or the config file. Throws Error for a name that is not declared.
  bool given(std::string_view name) const;
  /// Given, with a value other than the default. (A saved run record gives every option.) Throws as given() does.
  bool changed(std::string_view name) const;
  const std::string& command() const { return command_; }

  /// The help text: usage, then the flags by section, with defaults and limits.
  std::string help() const;
  /// Every recorded option with its present value, {"groups": 64, ...}.
  nlohmann::json record() const;
  /// The same as a TOML file that --config reads back (empty optionals and paths are left out).
  std::string record_toml() const;

 private:
  Option& declare(std::string name, std::string help);
  Option* find(std::string_view name) const;
  void read_config(const std::filesystem::path& file);
  std::vector<std::string> flag_names() const;
  [[noreturn]] void fail_unknown_flag(const std::string& flag) const;

  std::string command_;
  std::string summary_;
  std::string section_;
  std::vector<std::unique_ptr<Option>> options_;
  bool help_requested_ = false;
};

namespace detail {

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
struct Element {
  using Type = T;
};
template <typename T>
struct Element<std::optional<T>> {
  using Type = T;
};
template <typename T>
struct Element<std::vector<T>> {
  using Type = T;
};

/// How messages and help name a type: (kind, value name).
template <typename T>
std::pair<std::string, std::string> describe_type();
template <>
std::pair<std::string, std::string> describe_type<int64_t>();
template <>
std::pair<std::string, std::string> describe_type<double>();
template <>
std::pair<std::string, std::string> describe_type<std::string>();
template <>
std::pair<std::string, std::string> describe_type<std::filesystem::path>();
template <>
std::pair<std::string, std::string> describe_type<bool>();

template <typename T>
nlohmann::json to_json(const T& value) {
  if constexpr (IsOptional<T>::value) {
    return value ? to_json(*value) : nlohmann::json();
  } else if constexpr (IsVector<T>::value) {
    nlohmann::json array = nlohmann::json::array();
    for (const auto& element : value) array.push_back(to_json(element));
    return array;
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return value.empty() ? nlohmann::json() : nlohmann::json(value.string());
  } else {
    return value;
  }
}

}  // namespace detail

template <typename T>
Option& OptionTable::add(std::string name, T* target, std::string help) {
  using Value = typename detail::Element<T>::Type;
  Option& option = declare(std::move(name), std::move(help));
  std::tie(option.kind_, option.value_name_) = detail::describe_type<Value>();
  option.is_switch_ = std::is_same_v<Value, bool>;
  option.is_list_ = detail::IsVector<T>::value;
  option.default_ = detail::to_json(*target);
  option.value_ = [target] { return detail::to_json(*target); };
  option.set_ = [target, &option](const std::vector<std::string>& texts) {
    std::vector<Value> values;
    for (const std::string& text : texts) {
      std::optional<Value> value = option.parse<Value>(text);
      if (!value) return false;
      values.push_back(std::move(*value));
    }
    if constexpr (detail::IsVector<T>::value) {
      *target = std::move(values);
    } else {
      if (values.size() != 1) return false;
      *target = std::move(values.front());
    }
    return true;
  };
  return option;
}

template <typename E>
Option& OptionTable::add_choice(std::string name, E* target, const std::vector<std::pair<std::string, E>>& choices,
                                std::string help) {
  Option& option = declare(std::move(name), std::move(help));
  for (const auto& choice : choices) option.choices_.push_back(choice.first);
  option.value_name_ = "NAME";
  option.value_ = [target, choices] {
    for (const auto& [text, value] : choices) {
      if (value == *target) return nlohmann::json(text);
    }
    return nlohmann::json();
  };
  option.default_ = option.value_();
  option.set_ = [target, choices](const std::vector<std::string>& texts) {
    for (const auto& [text, value] : choices) {
      if (texts.size() == 1 && text == texts.front()) {
        *target = value;
        return true;
      }
    }
    return false;
  };
  return option;
}

template <typename T>
Option& OptionTable::add_positional(std::string name, T* target, std::string help) {
  Option& option = add(std::move(name), target, std::move(help));
  option.positional_ = true;
  return option;
}

}  // namespace focus
