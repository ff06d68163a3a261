#include "tokenizer/byte_level.h"

#include <array>

#include "tokenizer/unicode.h"

namespace focus {

namespace {

constexpr size_t kStandIns = 324;  // one above the highest stand-in, U+0143

struct Tables {
  std::array<char32_t, 256> to_char{};
  std::array<int, kStandIns> to_byte{};
};

Tables make_tables() {
  Tables tables;
  tables.to_byte.fill(-1);
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const char32_t c = printable ? static_cast<char32_t>(byte) : next++;
    tables.to_char[byte] = c;
    tables.to_byte[c] = static_cast<int>(byte);
  }
  return tables;
}

const Tables& tables() {
  static const Tables instance = make_tables();
  return instance;
}

}  // namespace

char32_t byte_to_char(unsigned char byte) {
  return tables().to_char[byte];
}

int char_to_byte(char32_t code_point) {
  return code_point < kStandIns ? tables().to_byte[code_point] : -1;
}

std::string to_byte_chars(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(out, byte_to_char(static_cast<unsigned char>(byte)));
  return out;
}

std::string from_byte_chars(std::string_view token) {
  std::string out;
  for (size_t position = 0; position < token.size();) {
    const int byte = char_to_byte(next_code_point(token, position));
    if (byte < 0) return std::string(token);
    out.push_back(static_cast<char>(byte));
  }
  return out;
}

}  // namespace focus
