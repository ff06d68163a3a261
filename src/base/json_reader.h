#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace focus {

/// Most levels of lists and objects inside each other that a file may hold: reading, copying and writing such a value
/// then never takes more stack than there is.
inline constexpr int64_t kMaxJsonDepth = 100;

/// The value of a JSON text. `place` names it in messages: a file, or a file and a line. Throws Error with the place,
/// the byte or line and column, and what was expected there; also for more than kMaxJsonDepth levels.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& place);
template <>
nlohmann::json parse_json<nlohmann::json>(std::string_view text, const std::string& place);
template <>
nlohmann::ordered_json parse_json<nlohmann::ordered_json>(std::string_view text, const std::string& place);

/// Reads a JSON file whose top level is an object. Throws Error as parse_json() does.
nlohmann::json read_json_object(const std::filesystem::path& file);

/// Throws Error if lists and objects are nested more than kMaxJsonDepth deep. For readers with a parser of their own.
void check_json_depth(std::string_view text, const std::string& place);

/// What is wrong according to the JSON library, as "at line 2, column 7: ..." where it knows the place, else as
/// "(...)", without the library's names of errors, in printable ASCII of a bounded length. `text` is what was parsed.
std::string json_error_text(const nlohmann::json::exception& error, std::string_view text);

/// The value as JSON for a message, cut where it is long.
template <typename Json>
std::string json_excerpt(const Json& value) {
  constexpr size_t kLongest = 100;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kLongest) {
    text.resize(kLongest);
    text += "...";
  }
  return text;
}

}  // namespace focus
