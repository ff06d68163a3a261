#include "report/toml_reader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace focus {

namespace {

std::string position(const std::string& file, const toml::source_region& source) {
  return source.begin.line == 0 ? file : fmt::format("{}: line {}", file, source.begin.line);
}

std::optional<std::string> scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  return std::nullopt;
}

std::optional<double> scalar_number(const toml::node& node) {
  if (const auto* number = node.as_integer()) return static_cast<double>(number->get());
  if (const auto* number = node.as_floating_point()) return number->get();
  return std::nullopt;
}

}  // namespace

toml::table parse_toml(const std::string& text, const std::string& file) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail("{}: {}", position(file, error.source()), error.description());
  }
}

TomlReader::TomlReader(const toml::table& table, std::string file, std::string where)
    : table_(&table), file_(std::move(file)), where_(std::move(where)) {}

void TomlReader::fail_at(const toml::node& node, const std::string& message) const {
  fail("{}: {}{}{}", position(file_, node.source()), where_, where_.empty() ? "" : ": ", message);
}

void TomlReader::fail_here(const std::string& message) const {
  fail_at(*table_, message);
}

const toml::node* TomlReader::node(const char* key) {
  asked_.emplace_back(key);
  return table_->get(key);
}

std::string TomlReader::text(const char* key) {
  std::string found = text_or(key, "");
  if (found.empty()) fail_here(fmt::format("{} is missing", key));
  return found;
}

std::string TomlReader::text_or(const char* key, const std::string& fallback) {
  const toml::node* found = node(key);
  if (found == nullptr) return fallback;
  if (!found->is_string()) fail_at(*found, fmt::format("{}: expected a text", key));
  return found->as_string()->get();
}

double TomlReader::number_or(const char* key, double fallback) {
  const toml::node* found = node(key);
  if (found == nullptr) return fallback;
  const auto number = scalar_number(*found);
  if (!number) fail_at(*found, fmt::format("{}: expected a number", key));
  return *number;
}

int64_t TomlReader::integer_or(const char* key, int64_t fallback) {
  const toml::node* found = node(key);
  if (found == nullptr) return fallback;
  if (!found->is_integer()) fail_at(*found, fmt::format("{}: expected an integer", key));
  return found->as_integer()->get();
}

bool TomlReader::flag_or(const char* key, bool fallback) {
  const toml::node* found = node(key);
  if (found == nullptr) return fallback;
  if (!found->is_boolean()) fail_at(*found, fmt::format("{}: expected true or false", key));
  return found->as_boolean()->get();
}

std::vector<std::string> TomlReader::texts_or_none(const char* key) {
  const toml::node* found = node(key);
  std::vector<std::string> texts;
  if (found == nullptr) return texts;
  if (!found->is_array()) fail_at(*found, fmt::format("{}: expected an array of texts", key));
  for (const toml::node& element : *found->as_array()) {
    if (!element.is_string()) fail_at(element, fmt::format("{}: expected an array of texts", key));
    texts.push_back(element.as_string()->get());
  }
  return texts;
}

std::optional<TomlReader> TomlReader::table(const char* key) {
  const toml::node* found = node(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_table()) fail_at(*found, fmt::format("{}: expected a table", key));
  return TomlReader(*found->as_table(), file_, where_.empty() ? key : where_ + "." + key);
}

std::vector<std::string> TomlReader::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : *table_) names.emplace_back(key.str());
  return names;
}

std::map<std::string, std::string> TomlReader::map_of_texts(const char* key) {
  std::map<std::string, std::string> texts;
  std::optional<TomlReader> inner = table(key);
  if (!inner) return texts;
  for (const std::string& name : inner->keys()) {
    const toml::node& value = *inner->table_->get(name);
    const auto text = scalar_text(value);
    if (!text) inner->fail_at(value, fmt::format("{}: expected a text or a number", name));
    texts[name] = *text;
  }
  return texts;
}

std::map<std::string, double> TomlReader::map_of_numbers(const char* key) {
  std::map<std::string, double> numbers;
  std::optional<TomlReader> inner = table(key);
  if (!inner) return numbers;
  for (const std::string& name : inner->keys()) {
    const toml::node& value = *inner->table_->get(name);
    const auto number = scalar_number(value);
    if (!number) inner->fail_at(value, fmt::format("{}: expected a number", name));
    numbers[name] = *number;
  }
  return numbers;
}

std::vector<TomlReader> TomlReader::tables(const char* key) {
  const toml::node* found = node(key);
  std::vector<TomlReader> readers;
  if (found == nullptr) return readers;
  if (!found->is_array()) fail_at(*found, fmt::format("{}: expected [[{}]]", key, key));
  for (const toml::node& element : *found->as_array()) {
    if (!element.is_table()) fail_at(element, fmt::format("{}: expected [[{}]]", key, key));
    readers.emplace_back(*element.as_table(), file_, where_.empty() ? key : where_ + "." + key);
  }
  return readers;
}

void TomlReader::finish() const {
  for (const auto& [key, value] : *table_) {
    const std::string name(key.str());
    if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
    const std::string nearest = nearest_name(name, asked_);
    fail_at(value, fmt::format("unknown key '{}'; {}", name,
                               nearest.empty() ? fmt::format("known: {}", fmt::join(asked_, ", "))
                                               : fmt::format("did you mean {}?", nearest)));
  }
}

}  // namespace focus
