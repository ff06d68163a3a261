#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "tokenizer/test_files.h"

namespace focus {
namespace {

using nlohmann::json;
using Pieces = std::vector<std::string>;

Pieces pieces_of(const json& component, std::string_view text, bool at_start = true) {
  Pieces pieces;
  make_pre_tokenizer(test_node(component))->split(text, at_start, [&](std::string_view piece, bool) {
    pieces.emplace_back(piece);
  });
  return pieces;
}

json split(const char* behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}};
}

// The examples of the documentation of Hugging Face's SplitDelimiterBehavior, and runs at both ends.
TEST(Split, Behaviors) {
  const char* text = "the-final--countdown";
  EXPECT_EQ(pieces_of(split("Removed"), text), (Pieces{"the", "final", "countdown"}));
  EXPECT_EQ(pieces_of(split("Isolated"), text), (Pieces{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(pieces_of(split("Contiguous"), text), (Pieces{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(pieces_of(split("MergedWithPrevious"), text), (Pieces{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(pieces_of(split("MergedWithNext"), text), (Pieces{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(pieces_of(split("MergedWithPrevious"), "--a--"), (Pieces{"-", "-", "a-", "-"}));
  EXPECT_EQ(pieces_of(split("MergedWithNext"), "--a--"), (Pieces{"-", "-a", "-", "-"}));
  EXPECT_EQ(pieces_of(split("Removed", true), text), (Pieces{"-", "-", "-"}));
  EXPECT_EQ(pieces_of(split("Removed"), "---"), Pieces{});
}

TEST(Split, UnknownBehaviorIsNamed) {
  EXPECT_NE(error_of([] { pieces_of(split("Shuffled"), ""); }).find("t.json: split behavior 'Shuffled'"),
            std::string::npos);
}

TEST(Digits, OneByOneOrTogether) {
  const std::string text = "a12\xC2\xBD b";
  EXPECT_EQ(pieces_of({{"type", "Digits"}, {"individual_digits", true}}, text),
            (Pieces{"a", "1", "2", "\xC2\xBD", " b"}));
  EXPECT_EQ(pieces_of({{"type", "Digits"}, {"individual_digits", false}}, text), (Pieces{"a", "12\xC2\xBD", " b"}));
}

TEST(ByteLevel, SplitsAsGpt2) {
  json component = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  EXPECT_EQ(pieces_of(component, "Don't  stop, 42!\r\n"), (Pieces{"Don", "'t", " ", " stop", ",", " 42", "!", "\r\n"}));
  component["add_prefix_space"] = true;
  EXPECT_EQ(pieces_of(component, "a b"), (Pieces{" a", " b"}));
  EXPECT_EQ(pieces_of(component, " a b"), (Pieces{" a", " b"}));
  component["use_regex"] = false;
  EXPECT_EQ(pieces_of(component, "a b"), (Pieces{" a b"}));
}

TEST(ByteLevel, IsCharactersOnlyWhereMoreFollows) {
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_TRUE(make_pre_tokenizer(test_node(byte_level))->yields_bytes());
  const json sequence = {{"type", "Sequence"}, {"pretokenizers", {byte_level, split("Isolated")}}};
  EXPECT_FALSE(make_pre_tokenizer(test_node(sequence))->yields_bytes());
  EXPECT_EQ(pieces_of(sequence, "a -"), (Pieces{"a", "\xC4\xA0", "-"}));
}

TEST(Metaspace, PrependsBySchemeAndSplits) {
  json component = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}};
  EXPECT_EQ(pieces_of(component, "a  b"), (Pieces{"_a", "_", "_b"}));
  EXPECT_EQ(pieces_of(component, " a"), (Pieces{"_a"}));
  component["split"] = false;
  EXPECT_EQ(pieces_of(component, "a b"), (Pieces{"_a_b"}));
  component["prepend_scheme"] = "first";
  EXPECT_EQ(pieces_of(component, "a b", false), (Pieces{"a_b"}));
  EXPECT_EQ(pieces_of(component, "a b", true), (Pieces{"_a_b"}));
  EXPECT_EQ(pieces_of({{"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", false}}, "a b"),
            (Pieces{"a", "_b"}));
  component["prepend_scheme"] = "sometimes";
  EXPECT_NE(error_of([&] { pieces_of(component, ""); }).find("'sometimes'"), std::string::npos);
  component["replacement"] = "__";
  EXPECT_NE(error_of([&] { pieces_of(component, ""); }).find("must be one character"), std::string::npos);
}

TEST(PreTokenizer, UnknownTypeIsNamed) {
  const json sequence = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "BertPreTokenizer"}}}}};
  EXPECT_EQ(error_of([&] { pieces_of(sequence, ""); }).substr(0, 66),
            "t.json: pretokenizers[0]: a pre-tokenizer of type 'BertPreTokenize");
}

}  // namespace
}  // namespace focus
