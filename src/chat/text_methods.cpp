#include "chat/text_methods.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/python_text.h"
#include "tokenizer/unicode.h"

namespace focus::jinja {

namespace {

char32_t code_point_of(const std::string& character) {
  size_t at = 0;
  return next_code_point(character, at);
}

enum class Case { kUpper, kLower };

/// A character in the other case. Of those that become several in upper case only the German sharp s is known.
void append_case(std::string& out, const std::string& character, Case to) {
  const char32_t c = code_point_of(character);
  if (to == Case::kLower) {
    append_lower_case(out, c);
  } else if (c == 0xDF) {
    out += "SS";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

std::string mapped(const std::string& text, Case to) {
  std::string result;
  for (const std::string& character : characters(to_valid_utf8(text))) append_case(result, character, to);
  return result;
}

/// Upper case wherever `starts` says so of the character before ("" at the beginning), else lower case.
template <typename Starts>
std::string with_capitals(const std::string& text, const Starts& starts) {
  std::string result, before;
  for (const std::string& character : characters(to_valid_utf8(text))) {
    append_case(result, character, starts(before) ? Case::kUpper : Case::kLower);
    before = character;
  }
  return result;
}

}  // namespace

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> parts;
  for (const char c : text) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    if (!continues || parts.empty()) parts.emplace_back();
    parts.back() += c;
  }
  return parts;
}

std::string strip(const std::string& text, const Value& which, bool left, bool right) {
  const bool spaces = which.is_undefined() || which.is_none();
  const std::vector<std::string> parts = characters(to_valid_utf8(text));
  const std::vector<std::string> set =
      spaces ? std::vector<std::string>() : characters(to_valid_utf8(which.as_string()));
  const auto goes = [&](const std::string& character) {
    return spaces ? is_space(code_point_of(character)) : std::find(set.begin(), set.end(), character) != set.end();
  };
  auto begin = parts.begin();
  auto end = parts.end();
  if (left) begin = std::find_if_not(begin, end, goes);
  if (right) end = std::find_if_not(std::reverse_iterator(end), std::reverse_iterator(begin), goes).base();
  return std::accumulate(begin, end, std::string());
}

std::string upper_case(const std::string& text) {
  return mapped(text, Case::kUpper);
}

std::string lower_case(const std::string& text) {
  return mapped(text, Case::kLower);
}

std::string title_method(const std::string& text) {
  return with_capitals(text, [](const std::string& before) {
    if (before.empty()) return true;
    const auto c = static_cast<utf8proc_int32_t>(code_point_of(before));
    return utf8proc_toupper(c) == c && utf8proc_tolower(c) == c;
  });
}

std::string title_filter(const std::string& text) {
  return with_capitals(text, [](const std::string& before) {
    return before.empty() || is_space(code_point_of(before)) ||
           std::string_view("-({[<").find(before) != std::string_view::npos;
  });
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t count) {
  require(!from.empty(), "replace: the text to replace is empty");
  std::string result;
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string::npos && count != 0; found = text.find(from, at), --count) {
    result.append(text, at, found - at).append(to);
    require(result.size() <= kLongestText, "replace: a text longer than {}", kLongestText);
    at = found + from.size();
  }
  return result.append(text, at);
}

List split(const std::string& text, const Value& separator, int64_t limit) {
  List parts;
  if (separator.is_undefined() || separator.is_none()) {
    require(limit < 0, "split: a limit needs a separator");
    std::string word;
    for (const std::string& character : characters(to_valid_utf8(text))) {
      if (!is_space(code_point_of(character))) {
        word += character;
      } else if (!word.empty()) {
        parts.emplace_back(std::exchange(word, {}));
      }
    }
    if (!word.empty()) parts.emplace_back(word);
    return parts;
  }
  const std::string& mark = separator.as_string();
  require(!mark.empty(), "split: the separator is empty");
  size_t at = 0;
  for (size_t found = text.find(mark); found != std::string::npos && limit != 0; found = text.find(mark, at), --limit) {
    parts.emplace_back(text.substr(at, found - at));
    at = found + mark.size();
  }
  parts.emplace_back(text.substr(at));
  return parts;
}

}  // namespace focus::jinja
