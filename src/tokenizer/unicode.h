#pragma once

#include <string>
#include <string_view>

namespace focus {

/// Appends the UTF-8 bytes of a code point.
void append_utf8(std::string& out, char32_t code_point);

/// The code point at byte `position` of valid UTF-8; moves `position` behind it.
char32_t next_code_point(std::string_view text, size_t& position);

/// Turns bytes that arrive in pieces into valid UTF-8. Every maximal part of a character that cannot be completed
/// becomes one U+FFFD (Unicode Standard 3.9, "substitution of maximal subparts", as Rust's from_utf8_lossy does).
class Utf8Repair {
 public:
  /// Appends to `out` what is certain; an unfinished character at the end is kept for the next call.
  void push(std::string_view bytes, std::string& out);
  /// Appends U+FFFD if an unfinished character is left, and starts anew.
  void finish(std::string& out);

 private:
  std::string pending_;
};

bool is_valid_utf8(std::string_view bytes);
/// `bytes` with everything that is not UTF-8 replaced as by Utf8Repair.
std::string to_valid_utf8(std::string_view bytes);

/// General categories Nd, Nl and No.
bool is_numeric(char32_t code_point);
/// The White_Space property.
bool is_whitespace(char32_t code_point);
/// A character of a word as in the class \w of Unicode Technical Standard 18, annex C.
bool is_word(char32_t code_point);
/// General categories Mn, Mc and Me.
bool is_combining_mark(char32_t code_point);
/// Full lower case without context, as Rust's char::to_lowercase.
void append_lower_case(std::string& out, char32_t code_point);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
/// Valid UTF-8 in the given normal form (Unicode Standard Annex 15). Throws Error if memory runs out.
std::string to_normal_form(std::string_view text, NormalForm form);

}  // namespace focus
