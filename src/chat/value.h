#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace focus::jinja {

/// Bounds on what a hostile template may build: bytes of a text, and levels of lists and dicts inside each other that
/// are printed or compared (a namespace may hold itself).
inline constexpr size_t kLongestText = size_t{1} << 24;
inline constexpr int64_t kDeepestValue = 200;

struct Undefined {};
struct None {};

class Value;
using List = std::vector<Value>;

/// Names and values in the order of insertion.
class Dict {
 public:
  /// Null if there is no such name.
  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value);
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, Value>> items_;
};

/// A value of a template's expression: Python's None, bool, int, float, str, list and dict, or undefined. Copies of
/// lists and dicts share their content, as in Python.
class Value {
 public:
  Value() = default;  ///< Undefined.
  // NOLINTBEGIN(google-explicit-constructor): templates mix these types as they come.
  Value(None value) : data_(value) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::move(value)) {}
  Value(const char* value) : data_(std::string(value)) {}
  Value(List value);
  Value(Dict value);
  // NOLINTEND(google-explicit-constructor)
  static Value from_json(const nlohmann::ordered_json& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(data_); }
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<List>>(data_); }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<Dict>>(data_); }

  /// The content. Throws Error naming the type at hand when it is another.
  int64_t as_int() const;
  double as_number() const;
  const std::string& as_string() const;
  const List& as_list() const;
  const Dict& as_dict() const;
  Dict& as_dict();

  /// Python's truth value.
  bool truthy() const;
  /// "str", "list" ... for messages.
  const char* type_name() const;
  /// What a template prints: Python's str(). This and the next three throw Error for what is nested deeper than
  /// kDeepestValue, and for a text longer than kLongestText or as much to compare.
  std::string text() const;
  /// Python's repr().
  std::string repr() const;
  /// Python's json.dumps(..., ensure_ascii=False), with line breaks when indent >= 0. Throws Error for undefined.
  std::string to_json(int64_t indent = -1) const;
  bool operator==(const Value& other) const;
  /// Numbers by size, texts by code point. Throws Error for others.
  bool operator<(const Value& other) const;

 private:
  bool equals(const Value& other, int64_t depth, int64_t& steps) const;

  std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<List>, std::shared_ptr<Dict>> data_;
};

}  // namespace focus::jinja
