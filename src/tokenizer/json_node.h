#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace focus {

/// A value of a JSON file together with its place in it, so that every complaint names file, path and field.
class JsonNode {
 public:
  /// The whole document of `file`.
  static JsonNode root(const nlohmann::json& value, const std::string& file) { return JsonNode(value, file, ": "); }

  const nlohmann::json& value() const { return *value_; }
  /// "file: path" of this value.
  const std::string& where() const { return where_; }
  bool is_null() const { return value_->is_null(); }

  /// The field, which must be there and not null.
  JsonNode child(const std::string& key) const;
  /// The field if it is there and not null.
  std::optional<JsonNode> find(const std::string& key) const;
  /// The elements of the array in a field.
  std::vector<JsonNode> items(const std::string& key) const;

  std::string text(const std::string& key) const;
  bool flag(const std::string& key, bool otherwise) const;
  int64_t integer(const std::string& key) const;
  /// The field "type".
  std::string type() const { return text("type"); }
  /// Throws Error: this component has a type that is not known; `known` lists those that are.
  [[noreturn]] void fail_type(const std::string& what, const std::string& type, const std::string& known) const;

 private:
  JsonNode(const nlohmann::json& value, std::string where, const char* separator)
      : value_(&value), where_(std::move(where)), separator_(separator) {}

  const nlohmann::json* value_;
  std::string where_;
  const char* separator_;  // between `where_` and the name of a field
};

}  // namespace focus
