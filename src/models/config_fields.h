#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace focus {

/// Typed access to the fields of a config.json (or an object inside it). A field of the wrong type or range is an Error
/// that names the file, the field and the value; null counts as absent.
class ConfigFields {
 public:
  /// `object` must outlive this.
  ConfigFields(const nlohmann::json& object, std::string file) : object_(&object), file_(std::move(file)) {}

  bool has(const std::string& name) const;
  /// Whether the field is there at all, null or not.
  bool mentions(const std::string& name) const { return object_->contains(name); }
  /// Whether the field is false (and not of another type).
  bool is_false(const std::string& name) const;
  /// A size: 1 to 2^31 - 1.
  int64_t size(const std::string& name) const;
  int64_t size(const std::string& name, int64_t fallback) const;
  /// 0 to 2^31 - 1.
  int64_t count(const std::string& name, int64_t fallback) const;
  double number(const std::string& name) const;
  double number(const std::string& name, double fallback) const;
  bool flag(const std::string& name, bool fallback) const;
  std::string text(const std::string& name, const std::string& fallback) const;
  /// A list of texts; empty if absent.
  std::vector<std::string> texts(const std::string& name) const;
  /// One token id or a list of them; empty if absent.
  std::vector<int64_t> token_ids(const std::string& name) const;
  /// The object of that name, an empty one if absent.
  const nlohmann::json& object(const std::string& name) const;
  const std::string& file() const { return file_; }

 private:
  const nlohmann::json* find(const std::string& name) const;
  const nlohmann::json& get(const std::string& name) const;

  const nlohmann::json* object_;
  std::string file_;
};

}  // namespace focus
