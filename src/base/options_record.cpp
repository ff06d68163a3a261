#include <algorithm>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/options.h"

namespace focus {

namespace {

using nlohmann::json;

/// A config value as the text that the same value would have on the command line; nullopt for tables and dates.
std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return std::nullopt;
}

std::string toml_value(const json& value) {
  if (value.is_array()) {
    std::vector<std::string> parts;
    for (const json& element : value) parts.push_back(toml_value(element));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  if (!value.is_string()) return json_text(value);
  // JSON's escapes are a subset of TOML's; only DEL must be escaped in addition.
  std::string text = json_text(value);
  for (size_t at = text.find('\x7f'); at != std::string::npos; at = text.find('\x7f')) text.replace(at, 1, "\\u007F");
  return text;
}

}  // namespace

void OptionTable::read_config(const std::filesystem::path& file) {
  toml::table table;
  try {
    table = toml::parse(read_file(file), file.string());
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    if (line == 0) fail("--config {}: {}", file.string(), error.description());
    fail("--config {}: line {}: {}", file.string(), line, error.description());
  }
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    std::replace(name.begin(), name.end(), '_', '-');
    Option* option = find(name);
    if (option == nullptr) {
      std::vector<std::string> names;
      for (const auto& known : options_) names.push_back(known->name_);
      const std::string nearest = nearest_name(name, names);
      fail_usage(
          "{}: unknown key '{}'; {}", file.string(), key.str(),
          nearest.empty() ? fmt::format("see 'focus {} --help'", command_) : fmt::format("did you mean {}?", nearest));
    }
    std::vector<std::string> texts;
    const toml::array* array = node.as_array();
    bool scalars = array == nullptr || option->is_list_;
    if (array != nullptr) {
      for (const toml::node& element : *array) {
        const auto text = scalar_text(element);
        scalars = scalars && text.has_value();
        texts.push_back(text.value_or(""));
      }
    } else {
      const auto text = scalar_text(node);
      scalars = text.has_value();
      texts.push_back(text.value_or(""));
    }
    const std::string where = scalars ? fmt::format("{}: {} = {}", file.string(), name, fmt::join(texts, ", "))
                                      : fmt::format("{}: {}", file.string(), name);
    if (!scalars) fail_usage("{}: expected {}, not a table or array", where, option->expectation());
    option->assign(texts, where);
  }
}

json OptionTable::record() const {
  json record = json::object();
  for (const auto& option : options_) {
    if (option->recorded_) record[option->name_] = option->value_();
  }
  return record;
}

std::string OptionTable::record_toml() const {
  std::string text = fmt::format("# focus {} --config <this file>\n", command_);
  std::string section;
  for (const auto& option : options_) {
    const json value = option->value_();
    if (!option->recorded_ || value.is_null()) continue;
    if (option->section_ != section) {
      section = option->section_;
      text += fmt::format("\n# {}\n", section);
    }
    text += fmt::format("{} = {}\n", option->name_, toml_value(value));
  }
  return text;
}

}  // namespace focus
