#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"
#include "base/options.h"

namespace focus {

namespace {

constexpr size_t kWidth = 100;
constexpr size_t kHelpColumn = 30;

/// Appends `text` word by word, with lines broken at kWidth and continued at `indent`.
void append_wrapped(std::string& out, size_t column, size_t indent, const std::string& text) {
  size_t begin = 0;
  bool first = true;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const size_t length = end - begin;
    if (!first && column + 1 + length > kWidth) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out.append(text, begin, length);
    column += length;
    begin = end + 1;
    first = false;
  }
  out += '\n';
}

std::string plain(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  if (!value.is_array()) return json_text(value);
  std::vector<std::string> parts;
  for (const auto& element : value) parts.push_back(plain(element));
  return fmt::format("{}", fmt::join(parts, ","));
}

void append_entry(std::string& out, const std::string& left, const std::string& right) {
  out += "  " + left;
  size_t column = 2 + left.size();
  if (column + 2 > kHelpColumn) {
    out += '\n';
    column = 0;
  }
  out += std::string(kHelpColumn - column, ' ');
  append_wrapped(out, kHelpColumn, kHelpColumn, right);
}

}  // namespace

std::string OptionTable::help() const {
  std::string usage = "focus " + command_;
  bool has_positionals = false;
  for (const auto& option : options_) {
    if (!option->positional_) continue;
    has_positionals = true;
    const std::string name = option->name_ + (option->is_list_ ? "..." : "");
    usage += option->required_ ? fmt::format(" <{}>", name) : fmt::format(" [{}]", name);
  }
  std::string out = fmt::format("focus {}: ", command_);
  append_wrapped(out, out.size(), 2, summary_);
  out += "\nUsage: " + usage + " [flags]\n";

  auto right_side = [](const Option& option) {
    std::string text = option.help_;
    if (!option.choices_.empty()) text += fmt::format(": {}", fmt::join(option.choices_, ", "));
    const std::string value = option.default_text_.empty() ? plain(option.default_) : option.default_text_;
    if (option.required_) {
      text += " (needed)";
    } else if (!option.default_text_.empty() || (!option.default_.is_null() && !value.empty())) {
      text += fmt::format(" (default {})", value);
    }
    return text;
  };
  if (has_positionals) out += "\nArguments\n";
  for (const auto& option : options_) {
    if (option->positional_) append_entry(out, option->name_, right_side(*option));
  }
  // Sections in the order of their first flag, though a section may have been opened more than once.
  std::vector<std::string> sections;
  for (const auto& option : options_) {
    if (option->positional_ || std::find(sections.begin(), sections.end(), option->section_) != sections.end())
      continue;
    sections.push_back(option->section_);
  }
  for (const std::string& section : sections) {
    out += "\n" + section + "\n";
    for (const auto& option : options_) {
      if (option->positional_ || option->section_ != section) continue;
      std::string left = option->short_ != 0 ? fmt::format("-{}, ", option->short_) : "";
      left +=
          option->is_switch_ ? "--[no-]" + option->name_ : fmt::format("--{} {}", option->name_, option->value_name_);
      append_entry(out, left, right_side(*option));
    }
  }
  out += "\nGeneral\n";
  append_entry(out, "--config FILE", "TOML file of these flags (name = value); flags given win");
  append_entry(out, "-h, --help", "show this text");
  return out;
}

}  // namespace focus
