#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

namespace focus {

/// A TOML table that is read strictly: every key must be asked for, every value must have the type that is asked for,
/// or an Error of one line names file, line and key.
class TomlReader {
 public:
  /// `where` names the table in messages ("rows"), empty for the file itself.
  TomlReader(const toml::table& table, std::string file, std::string where);

  std::string text(const char* key);  ///< Must be there and not empty.
  std::string text_or(const char* key, const std::string& fallback);
  double number_or(const char* key, double fallback);
  int64_t integer_or(const char* key, int64_t fallback);
  bool flag_or(const char* key, bool fallback);
  std::vector<std::string> texts_or_none(const char* key);
  /// A table of texts and numbers, numbers as they are written on a command line.
  std::map<std::string, std::string> map_of_texts(const char* key);
  std::map<std::string, double> map_of_numbers(const char* key);
  /// The tables of an array of tables; none when it is absent.
  std::vector<TomlReader> tables(const char* key);
  /// The table under a key; nullopt when it is absent.
  std::optional<TomlReader> table(const char* key);
  const toml::node* node(const char* key);
  std::vector<std::string> keys() const;

  /// Refuses the keys that nobody asked for, with the nearest one that is known.
  void finish() const;
  /// Throws Error: "FILE: line N: WHERE: MESSAGE".
  [[noreturn]] void fail_here(const std::string& message) const;
  [[noreturn]] void fail_at(const toml::node& node, const std::string& message) const;

 private:
  const toml::table* table_;
  std::string file_, where_;
  std::vector<std::string> asked_;
};

/// Parses a TOML file's text. Throws Error: "FILE: line N: what is wrong".
toml::table parse_toml(const std::string& text, const std::string& file);

}  // namespace focus
