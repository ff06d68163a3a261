#pragma once

#include <string>
#include <string_view>

namespace focus {

/// The printable stand-in of a byte in byte-level vocabularies (GPT-2's bytes_to_unicode, openai/gpt-2 src/encoder.py):
/// printable Latin-1 characters stand for themselves, the others for U+0100 upwards in order.
char32_t byte_to_char(unsigned char byte);
/// The byte that a stand-in means, or -1.
int char_to_byte(char32_t code_point);

/// Every byte as its stand-in, in UTF-8.
std::string to_byte_chars(std::string_view bytes);
/// The bytes meant by a token of stand-ins; a token with any other character means its own UTF-8 bytes.
std::string from_byte_chars(std::string_view token);

}  // namespace focus
