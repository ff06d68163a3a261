#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"

namespace focus {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Utf8State { kComplete, kInvalid, kUnfinished };

struct Utf8Step {
  Utf8State state;
  size_t length;
};

// Looks at the character that begins at bytes[0]; the ranges are those of table 3-7 of the Unicode Standard.
Utf8Step scan_character(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Utf8State::kComplete, 1};
  size_t length = 0;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8State::kInvalid, 1};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Utf8State::kUnfinished, i};
    if (byte(i) < low || byte(i) > high) return {Utf8State::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8State::kComplete, length};
}

utf8proc_category_t category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

}  // namespace

void append_utf8(std::string& out, char32_t code_point) {
  const auto add = [&](unsigned value) { out.push_back(static_cast<char>(value)); };
  const unsigned c = code_point;
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xC0 | (c >> 6));
    add(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    add(0xE0 | (c >> 12));
    add(0x80 | ((c >> 6) & 0x3F));
    add(0x80 | (c & 0x3F));
  } else {
    add(0xF0 | (c >> 18));
    add(0x80 | ((c >> 12) & 0x3F));
    add(0x80 | ((c >> 6) & 0x3F));
    add(0x80 | (c & 0x3F));
  }
}

char32_t next_code_point(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[position + i])); };
  const char32_t lead = byte(0);
  char32_t code_point = lead;
  size_t length = 1;
  if (lead >= 0xF0) {
    code_point = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    length = 4;
  } else if (lead >= 0xE0) {
    code_point = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    length = 3;
  } else if (lead >= 0xC0) {
    code_point = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    length = 2;
  }
  position += length;
  return code_point;
}

void Utf8Repair::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = std::move(pending_);
    joined += bytes;
    pending_.clear();
    bytes = joined;
  }
  size_t done = 0;
  size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Step step = scan_character(bytes.substr(position));
    if (step.state != Utf8State::kComplete) {
      out += bytes.substr(done, position - done);
      done = position + step.length;
      if (step.state == Utf8State::kUnfinished) {
        pending_ = bytes.substr(position);
      } else {
        out += kReplacement;
      }
    }
    position += step.length;
  }
  out += bytes.substr(done);
}

void Utf8Repair::finish(std::string& out) {
  if (!pending_.empty()) out += kReplacement;
  pending_.clear();
}

bool is_valid_utf8(std::string_view bytes) {
  for (size_t position = 0; position < bytes.size();) {
    const Utf8Step step = scan_character(bytes.substr(position));
    if (step.state != Utf8State::kComplete) return false;
    position += step.length;
  }
  return true;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Utf8Repair repair;
  repair.push(bytes, out);
  repair.finish(out);
  return out;
}

bool is_numeric(char32_t code_point) {
  const utf8proc_category_t c = category(code_point);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_whitespace(char32_t c) {
  if (c >= 0x09 && c <= 0x0D) return true;
  if (c == 0x85) return true;
  const utf8proc_category_t z = category(c);
  return z == UTF8PROC_CATEGORY_ZS || z == UTF8PROC_CATEGORY_ZL || z == UTF8PROC_CATEGORY_ZP;
}

bool is_word(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  // The joiners, and the enclosed letters, which are symbols with the property Alphabetic.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool is_combining_mark(char32_t code_point) {
  const utf8proc_category_t c = category(code_point);
  return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

void append_lower_case(std::string& out, char32_t code_point) {
  if (code_point == 0x130) {
    out += "i\xCC\x87";  // the only character whose lower case is two characters: i and a dot above
    return;
  }
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))));
}

std::string to_normal_form(std::string_view text, NormalForm form) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
    return std::string(text);
  }
  int options = UTF8PROC_STABLE;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  require(length >= 0, "Unicode normalization failed: {}", length < 0 ? utf8proc_errmsg(length) : "");
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
}

}  // namespace focus
