#include "tokenizer/unicode.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tokenizer/byte_level.h"

namespace focus {
namespace {

const std::string kBad = "\xEF\xBF\xBD";

TEST(Unicode, RepairsMaximalParts) {
  EXPECT_EQ(to_valid_utf8("a\xFF"
                          "b"),
            "a" + kBad + "b");
  EXPECT_EQ(to_valid_utf8("\xE2\x82"), kBad) << "an unfinished character is one";
  EXPECT_EQ(to_valid_utf8("\xE2\x82x"), kBad + "x");
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\x92\xE2\x82\xAC"), kBad + "\xE2\x82\xAC");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), kBad + kBad + kBad) << "a surrogate";
  EXPECT_EQ(to_valid_utf8("\xC0\xAF"), kBad + kBad) << "an overlong form";
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), kBad + kBad + kBad + kBad) << "above U+10FFFF";
  EXPECT_EQ(to_valid_utf8("\xC3\xA9\xF0\x9F\x98\x80"), "\xC3\xA9\xF0\x9F\x98\x80");
}

RC_GTEST_PROP(Unicode, RepairInPiecesEqualsRepairAtOnce, (const std::vector<uint8_t>& bytes)) {
  const std::string text(bytes.begin(), bytes.end());
  Utf8Repair repair;
  std::string joined;
  for (const char byte : text) repair.push(std::string_view(&byte, 1), joined);
  repair.finish(joined);
  RC_ASSERT(joined == to_valid_utf8(text));
  RC_ASSERT(is_valid_utf8(joined));
}

TEST(Unicode, CodePointsSurviveTheRoundTrip) {
  for (const char32_t c : {U'a', char32_t{0x7F}, char32_t{0x80}, char32_t{0x7FF}, char32_t{0x800}, char32_t{0xFFFF},
                           char32_t{0x10000}, char32_t{0x10FFFF}}) {
    std::string text;
    append_utf8(text, c);
    size_t position = 0;
    EXPECT_EQ(next_code_point(text, position), c);
    EXPECT_EQ(position, text.size());
  }
}

TEST(Unicode, Classes) {
  EXPECT_TRUE(is_whitespace(0x85) && is_whitespace(0x3000) && is_whitespace(' ') && !is_whitespace(0x180E));
  EXPECT_FALSE(is_whitespace(0x1C)) << "the separators of ASCII have no White_Space";
  EXPECT_TRUE(is_numeric(0xBD) && is_numeric(0x2167) && is_numeric('7') && !is_numeric(0x4E00));
  EXPECT_TRUE(is_word('_') && is_word(0x301) && is_word(0x24B6) && !is_word('-') && !is_word(0xBD));
}

RC_GTEST_PROP(ByteLevelChars, AreOneToOne, (const std::vector<uint8_t>& bytes)) {
  const std::string text(bytes.begin(), bytes.end());
  RC_ASSERT(from_byte_chars(to_byte_chars(text)) == text);
}

TEST(ByteLevelChars, OtherCharactersMeanTheirOwnBytes) {
  EXPECT_EQ(from_byte_chars("\xC4\xA0\xE4\xB8\xAD"), "\xC4\xA0\xE4\xB8\xAD");
}

}  // namespace
}  // namespace focus
