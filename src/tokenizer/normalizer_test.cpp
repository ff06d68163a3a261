#include "tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include "tokenizer/test_files.h"

namespace focus {
namespace {

using nlohmann::json;

std::string normalized(const json& component, std::string text) {
  make_normalizer(test_node(component))->apply(text);
  return text;
}

TEST(Normalizer, ChangesTheText) {
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, "a"), "_a");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, ""), "");
  EXPECT_EQ(normalized({{"type", "Replace"}, {"pattern", {{"String", ". "}}}, {"content", "!"}}, "a. b.  "), "a!b! ");
  EXPECT_EQ(normalized({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "$0"}}, "a   b "), "a$0b ");
  EXPECT_EQ(normalized({{"type", "NFC"}}, "e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(normalized({{"type", "NFD"}}, "\xC3\xA9"), "e\xCC\x81");
  EXPECT_EQ(normalized({{"type", "NFKC"}}, "\xEF\xAC\x81"), "fi");
  EXPECT_EQ(normalized({{"type", "NFKD"}}, "\xEF\xAC\x81\xC3\xA9"), "fie\xCC\x81");
  EXPECT_EQ(normalized({{"type", "Lowercase"}}, "A\xC3\x84\xC4\xB0"), "a\xC3\xA4i\xCC\x87");
  EXPECT_EQ(normalized({{"type", "StripAccents"}}, "e\xCC\x81x"), "ex");
  EXPECT_EQ(normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
                       " \xE3\x80\x80"
                       "a b\n"),
            "a b");
  EXPECT_EQ(normalized({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, " a "), " a");
  EXPECT_EQ(normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}, " \n"), "");
  EXPECT_EQ(normalized({{"type", "ByteLevel"}}, " \xC3\xA9"), "\xC4\xA0\xC3\x83\xC2\xA9");
}

TEST(Normalizer, SequenceAppliesInOrder) {
  const json sequence = {{"type", "Sequence"},
                         {"normalizers",
                          {{{"type", "Prepend"}, {"prepend", " "}},
                           {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "_"}}}}};
  EXPECT_EQ(normalized(sequence, "a b"), "_a_b");
}

TEST(Normalizer, NamesUnknownTypesAndFields) {
  const json sequence = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Precompiled"}}}}};
  EXPECT_EQ(error_of([&] { make_normalizer(test_node(sequence)); }).substr(0, 60),
            "t.json: normalizers[1]: a normalizer of type 'Precompiled' i");
  const json missing = {{"type", "Prepend"}};
  EXPECT_EQ(error_of([&] { make_normalizer(test_node(missing)); }), "t.json: field 'prepend' is missing");
  const json wrong = {{"type", "Prepend"}, {"prepend", 3}};
  EXPECT_EQ(error_of([&] { make_normalizer(test_node(wrong)); }), "t.json: prepend: expected a string, found number");
  const json bad_regex = {{"type", "Replace"}, {"pattern", {{"Regex", "(a"}}}, {"content", ""}};
  EXPECT_EQ(error_of([&] { make_normalizer(test_node(bad_regex)); }),
            "t.json: pattern: regular expression '(a' is not valid: missing closing parenthesis");
  const json empty = {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "x"}};
  EXPECT_EQ(error_of([&] { make_normalizer(test_node(empty)); }), "t.json: pattern: the pattern is empty");
}

}  // namespace
}  // namespace focus
