#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// The first of `names` that exists in `folder`, as it is or with .gz. Throws Error naming all of them.
std::filesystem::path benchmark_file(const std::filesystem::path& folder, std::initializer_list<const char*> names);

/// A JSON object of a file, which knows its place for messages. Every member throws Error naming place and field.
class Record {
 public:
  Record(std::string place, nlohmann::ordered_json value);

  const std::string& place() const { return place_; }
  bool has(const char* field) const { return value_.contains(field); }
  std::string text(const char* field) const;
  /// An array of strings, not empty.
  std::vector<std::string> texts(const char* field) const;
  int64_t integer(const char* field) const;
  Record object(const char* field) const;
  const nlohmann::ordered_json& value() const { return value_; }
  /// Throws Error: `place: what`.
  [[noreturn]] void refuse(const std::string& what) const;
  /// An index below `count`, or refuses.
  int64_t index(int64_t index, size_t count) const;

 private:
  const nlohmann::ordered_json& at(const char* field, const char* kind) const;

  std::string place_;
  nlohmann::ordered_json value_;
};

/// Calls visit for the object on every line of a .jsonl file, plain or gzip; blank lines are left out.
void for_each_record(const std::filesystem::path& file, const std::function<void(const Record&)>& visit);

/// Lines without their ends; the last one only if it is not empty.
std::vector<std::string_view> split_lines(std::string_view text);

}  // namespace focus
