#include "base/json_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"

namespace focus {

namespace {

using nlohmann::json;

/// "line 2, column 7" of the byte with this number (from 1), of a text of one line "byte 7".
std::string position(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte > 0 ? byte - 1 : 0, text.size()));
  if (text.find('\n') == std::string_view::npos)
    return fmt::format("byte {} of {}", std::min(byte, text.size()), text.size());
  const size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     before.size() - line_start + 1);
}

/// The library quotes what it read last, which may be of any length and no text at all.
std::string printable(std::string text) {
  constexpr size_t kHalf = 120;
  if (text.size() > 2 * kHalf + 3) text = text.substr(0, kHalf) + "..." + text.substr(text.size() - kHalf);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

template <typename Json>
Json parse(std::string_view text, const std::string& place) {
  check_json_depth(text, place);
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const json::exception& error) {
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) fail("{}: empty, expected JSON", place);
    fail("{}: not valid JSON {}", place, json_error_text(error, text));
  }
}

}  // namespace

template <>
json parse_json<json>(std::string_view text, const std::string& place) {
  return parse<json>(text, place);
}

template <>
nlohmann::ordered_json parse_json<nlohmann::ordered_json>(std::string_view text, const std::string& place) {
  return parse<nlohmann::ordered_json>(text, place);
}

json read_json_object(const std::filesystem::path& file) {
  require(!std::filesystem::exists(file) || std::filesystem::is_regular_file(file), "{}: not a regular file",
          file.string());
  const std::string bytes = read_file(file);
  require(!bytes.empty(), "{}: the file is empty", file.string());
  json value = parse_json(bytes, file.string());
  require(value.is_object(), "{}: the top level is not a JSON object", file.string());
  return value;
}

void check_json_depth(std::string_view text, const std::string& place) {
  int64_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      require(++depth <= kMaxJsonDepth, "{}: JSON nested more than {} levels deep at {}", place, kMaxJsonDepth,
              position(text, i + 1));
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

std::string json_error_text(const json::exception& error, std::string_view text) {
  std::string what = error.what();
  const auto drop_through = [&](std::string_view mark) {
    const size_t at = what.find(mark);
    if (at != std::string::npos) what.erase(0, at + mark.size());
  };
  if (what.starts_with("[json.exception.")) drop_through("] ");
  const auto* parse_error = dynamic_cast<const json::parse_error*>(&error);
  if (parse_error == nullptr) return fmt::format("({})", printable(what));
  if (what.starts_with("parse error")) drop_through(": ");
  return fmt::format("at {}: {}", position(text, parse_error->byte), printable(what));
}

}  // namespace focus
