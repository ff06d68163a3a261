#include "base/python_text.h"

#include <utf8proc.h>

#include <algorithm>

namespace focus {

namespace {

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// The character at the front, and its length in bytes (1 for a byte that begins none).
std::pair<char32_t, size_t> front(std::string_view text) {
  utf8proc_int32_t c = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                      static_cast<utf8proc_ssize_t>(text.size()), &c);
  if (bytes < 1) return {0xFFFD, 1};
  return {static_cast<char32_t>(c), static_cast<size_t>(bytes)};
}

void append(std::string& text, utf8proc_int32_t c) {
  utf8proc_uint8_t bytes[4];
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(utf8proc_encode_char(c, bytes)));
}

}  // namespace

int64_t character_count(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); });
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && continues(text[begin])) --begin;
    if (!is_space(front(text.substr(begin)).first)) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

std::string_view strip(std::string_view text) {
  text = strip_right(text);
  while (!text.empty()) {
    const auto [c, bytes] = front(text);
    if (!is_space(c)) break;
    text.remove_prefix(bytes);
  }
  return text;
}

std::string capitalize(std::string_view text) {
  std::string out;
  bool first = true;
  while (!text.empty()) {
    const auto [c, bytes] = front(text);
    const auto code = static_cast<utf8proc_int32_t>(c);
    if (first && code == 0xDF) {
      out += "Ss";
    } else if (!first && code == 0x130) {
      out += "i\xCC\x87";  // i and a dot above
    } else {
      append(out, first ? utf8proc_totitle(code) : utf8proc_tolower(code));
    }
    first = false;
    text.remove_prefix(bytes);
  }
  return out;
}

int64_t count_split_parts(std::string_view text) {
  int64_t parts = 1;
  bool in_space = false;
  while (!text.empty()) {
    const auto [c, bytes] = front(text);
    const bool space = is_space(c);
    if (space && !in_space) ++parts;
    in_space = space;
    text.remove_prefix(bytes);
  }
  return parts;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  while (true) {
    const size_t at = text.find(from);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += to;
    text.remove_prefix(at + from.size());
  }
}

}  // namespace focus
