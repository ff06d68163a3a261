#include "chat/value.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json_text.h"

namespace focus::jinja {

namespace {

constexpr int64_t kMostComparisons = 10'000'000;
constexpr const char* kTypeNames[] = {"undefined", "None", "bool", "int", "float", "str", "list", "dict"};

std::string float_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e16) return fmt::format("{:.1f}", value);
  return fmt::format("{}", value);
}

std::string quoted(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else {
      out += c;
    }
  }
  return out + quote;
}

void check_size(const std::string& out, int64_t depth) {
  require(depth <= kDeepestValue, "lists and dicts are nested deeper than {} levels", kDeepestValue);
  require(out.size() <= kLongestText, "a text is longer than {}", kLongestText);
}

void write_repr(const Value& value, int64_t depth, std::string& out) {
  check_size(out, depth);
  const char* separator = "";
  if (value.is_list()) {
    out += '[';
    for (const Value& item : value.as_list()) {
      out += std::exchange(separator, ", ");
      write_repr(item, depth + 1, out);
    }
    out += ']';
  } else if (value.is_dict()) {
    out += '{';
    for (const auto& [name, item] : value.as_dict().items()) {
      out += std::exchange(separator, ", ") + quoted(name) + ": ";
      write_repr(item, depth + 1, out);
    }
    out += '}';
  } else {
    out += value.repr();
  }
}

/// Frees lists and dicts one after the other: each inside the other would take more stack than there is.
template <typename Content>
void release(Content* content) {
  static thread_local std::vector<std::unique_ptr<Content>> dead;
  static thread_local bool releasing = false;
  dead.emplace_back(content);
  if (releasing) return;
  releasing = true;
  while (!dead.empty()) {
    const auto last = std::move(dead.back());
    dead.pop_back();
  }
  releasing = false;
}

void write_json(const Value& value, int64_t indent, int64_t depth, std::string& out) {
  check_size(out, depth);
  const auto line = [&](int64_t level) {
    if (indent >= 0) out += '\n' + std::string(static_cast<size_t>(indent * level), ' ');
  };
  const char* separator = indent >= 0 ? "," : ", ";
  if (value.is_list()) {
    if (value.as_list().empty()) {
      out += "[]";
      return;
    }
    out += '[';
    for (size_t i = 0; i < value.as_list().size(); ++i) {
      if (i > 0) out += separator;
      line(depth + 1);
      write_json(value.as_list()[i], indent, depth + 1, out);
    }
    line(depth);
    out += ']';
  } else if (value.is_dict()) {
    if (value.as_dict().items().empty()) {
      out += "{}";
      return;
    }
    out += '{';
    bool first = true;
    for (const auto& [name, item] : value.as_dict().items()) {
      if (!first) out += separator;
      first = false;
      line(depth + 1);
      out += json_text(name) + ": ";
      write_json(item, indent, depth + 1, out);
    }
    line(depth);
    out += '}';
  } else if (value.is_string()) {
    out += json_text(value.as_string());
  } else if (value.is_none()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.truthy() ? "true" : "false";
  } else {
    require(value.is_number(), "tojson: {} cannot be written as JSON", value.type_name());
    out += value.text();
  }
}

}  // namespace

const Value* Dict::find(const std::string& name) const {
  for (const auto& [key, value] : items_) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Dict::set(const std::string& name, Value value) {
  for (auto& [key, held] : items_) {
    if (key == name) {
      held = std::move(value);
      return;
    }
  }
  items_.emplace_back(name, std::move(value));
}

Value::Value(List value) : data_(std::shared_ptr<List>(new List(std::move(value)), release<List>)) {}
Value::Value(Dict value) : data_(std::shared_ptr<Dict>(new Dict(std::move(value)), release<Dict>)) {}

Value Value::from_json(const nlohmann::ordered_json& json) {
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    List list;
    for (const auto& item : json) list.push_back(from_json(item));
    return list;
  }
  Dict dict;
  for (const auto& [name, item] : json.items()) dict.set(name, from_json(item));
  return dict;
}

int64_t Value::as_int() const {
  require(is_int(), "an int was expected, not {}", type_name());
  return std::get<int64_t>(data_);
}

double Value::as_number() const {
  require(is_number(), "a number was expected, not {}", type_name());
  return is_int() ? static_cast<double>(std::get<int64_t>(data_)) : std::get<double>(data_);
}

const std::string& Value::as_string() const {
  require(is_string(), "a str was expected, not {}", type_name());
  return std::get<std::string>(data_);
}

const List& Value::as_list() const {
  require(is_list(), "a list was expected, not {}", type_name());
  return *std::get<std::shared_ptr<List>>(data_);
}

const Dict& Value::as_dict() const {
  require(is_dict(), "a dict was expected, not {}", type_name());
  return *std::get<std::shared_ptr<Dict>>(data_);
}

Dict& Value::as_dict() {
  require(is_dict(), "a dict was expected, not {}", type_name());
  return *std::get<std::shared_ptr<Dict>>(data_);
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_bool()) return std::get<bool>(data_);
  if (is_number()) return as_number() != 0;
  if (is_string()) return !as_string().empty();
  return is_list() ? !as_list().empty() : !as_dict().items().empty();
}

const char* Value::type_name() const {
  return kTypeNames[data_.index()];
}

std::string Value::text() const {
  if (is_undefined()) return "";
  return is_string() ? as_string() : repr();
}

std::string Value::repr() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (is_bool()) return truthy() ? "True" : "False";
  if (is_int()) return std::to_string(as_int());
  if (is_number()) return float_text(as_number());
  if (is_string()) return quoted(as_string());
  std::string out;
  write_repr(*this, 0, out);
  return out;
}

std::string Value::to_json(int64_t indent) const {
  std::string out;
  write_json(*this, indent, 0, out);
  return out;
}

bool Value::operator==(const Value& other) const {
  int64_t steps = 0;
  return equals(other, 0, steps);
}

bool Value::equals(const Value& other, int64_t depth, int64_t& steps) const {
  require(depth <= kDeepestValue, "lists and dicts are nested deeper than {} levels", kDeepestValue);
  require(++steps <= kMostComparisons, "more than {} values to compare", kMostComparisons);
  const auto numeric = [](const Value& v) { return v.is_number() || v.is_bool(); };
  if (numeric(*this) && numeric(other)) {
    const auto number = [](const Value& v) { return v.is_bool() ? (v.truthy() ? 1.0 : 0.0) : v.as_number(); };
    return number(*this) == number(other);
  }
  if (data_.index() != other.data_.index()) return false;
  if (is_string()) return as_string() == other.as_string();
  if (is_list()) {
    const List& mine = as_list();
    const List& theirs = other.as_list();
    if (&mine == &theirs) return true;
    return std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                      [&](const Value& a, const Value& b) { return a.equals(b, depth + 1, steps); });
  }
  if (is_dict()) {
    if (&as_dict() == &other.as_dict()) return true;
    if (as_dict().items().size() != other.as_dict().items().size()) return false;
    for (const auto& [name, item] : as_dict().items()) {
      const Value* theirs = other.as_dict().find(name);
      if (theirs == nullptr || !item.equals(*theirs, depth + 1, steps)) return false;
    }
  }
  return true;
}

bool Value::operator<(const Value& other) const {
  if (is_number() && other.is_number()) return as_number() < other.as_number();
  require(is_string() && other.is_string(), "{} and {} have no order", type_name(), other.type_name());
  return as_string() < other.as_string();
}

}  // namespace focus::jinja
