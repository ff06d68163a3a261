#include "tokenizer/regex.h"

#include <gtest/gtest.h>

#include "tokenizer/test_files.h"

namespace focus {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const Regex regex(pattern, "test");
  Regex::Scan scan(regex, text);
  std::vector<std::string> found;
  while (const auto match = scan.next()) found.emplace_back(text.substr(match->begin, match->end - match->begin));
  return found;
}

using Found = std::vector<std::string>;

TEST(Regex, KnowsUnicodeClasses) {
  EXPECT_EQ(matches(R"(\p{L}+)", "\xC3\xA4x 1\xE4\xB8\xAD"), (Found{"\xC3\xA4x", "\xE4\xB8\xAD"}));
  EXPECT_EQ(matches(R"(\s)",
                    "a\xC2\xA0"
                    "b\xE1\xA0\x8E"
                    "c\xC2\x85"),
            (Found{"\xC2\xA0", "\xC2\x85"}))
      << "U+180E is no white space";
  EXPECT_EQ(matches(R"([^\s\p{L}]+)", "\xE1\xA0\x8E!a\t"), (Found{"\xE1\xA0\x8E!"}));
  EXPECT_EQ(matches(R"(\S+)", "ab c"), (Found{"ab", "c"}));
  EXPECT_EQ(matches(R"(\s+(?!\S))", "a   b "), (Found{"  ", " "}));
}

TEST(Regex, EmptyMatchesAdvanceByCharacters) {
  EXPECT_EQ(matches("x*", "\xC3\xA4xx"), (Found{"", "xx"}));
  EXPECT_EQ(matches("x*", ""), (Found{""}));
}

TEST(Regex, EscapedTextMatchesItself) {
  const std::string text = R"(a.b*c[d]{e}(f)|\^$+?-#&~ )";
  EXPECT_EQ(matches(Regex::escape(text), "x" + text + "x"), (Found{text}));
}

TEST(Regex, AnchorsMatchAtLinesAsInOniguruma) {
  EXPECT_EQ(matches("^a$", "a\na\nb"), (Found{"a", "a"}));
}

TEST(Regex, NamesABadPattern) {
  EXPECT_EQ(error_of([] { Regex("[a", "f.json: x"); }),
            "f.json: x: regular expression '[a' is not valid: missing terminating ] for character class");
}

}  // namespace
}  // namespace focus
