#include "tokenizer/bpe.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "tokenizer/test_files.h"

namespace focus {
namespace {

using nlohmann::json;
using Merges = std::vector<std::pair<std::string, std::string>>;
using Tokens = std::vector<std::pair<std::string, int64_t>>;

std::vector<int32_t> encode(const json& model, const Tokens& tokens, const Merges& merges, std::string_view piece) {
  const Vocabulary vocabulary(tokens, "t.json");
  const Bpe bpe(test_node(model), vocabulary, merges, false);
  Bpe::Memory memory;
  std::vector<int32_t> ids;
  bpe.encode(piece, memory, ids);
  return ids;
}

// The definition: again and again the leftmost of the pairs of lowest rank is joined.
std::vector<std::string> merge_by_definition(std::string_view piece, const Merges& merges) {
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  while (true) {
    size_t best_rank = merges.size();
    size_t best_place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = std::find(merges.begin(), merges.end(), std::pair(parts[i], parts[i + 1]));
      const auto rank = static_cast<size_t>(found - merges.begin());
      if (rank < best_rank) {
        best_rank = rank;
        best_place = i;
      }
    }
    if (best_rank == merges.size()) return parts;
    parts[best_place] += parts[best_place + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_place) + 1);
  }
}

RC_GTEST_PROP(Bpe, EqualsItsDefinition, ()) {
  // Random merges over four letters, each of parts made before, and pieces on both sides of the length that is cut.
  Tokens tokens = {{"a", 0}, {"b", 1}, {"c", 2}, {"d", 3}};
  Merges merges;
  const auto count = *rc::gen::inRange<size_t>(0, 20);
  for (size_t i = 0; i < count; ++i) {
    const auto left = tokens[*rc::gen::inRange<size_t>(0, tokens.size())].first;
    const auto right = tokens[*rc::gen::inRange<size_t>(0, tokens.size())].first;
    if (std::find(merges.begin(), merges.end(), std::pair(left, right)) != merges.end()) continue;
    merges.emplace_back(left, right);
    const bool is_new =
        std::none_of(tokens.begin(), tokens.end(), [&](const auto& t) { return t.first == left + right; });
    if (is_new) tokens.emplace_back(left + right, static_cast<int64_t>(tokens.size()));
  }
  const auto length = *rc::gen::inRange<size_t>(0, 120);
  const auto piece = *rc::gen::container<std::string>(length, rc::gen::elementOf(std::string("abcd")));
  std::map<std::string, int32_t> ids;
  for (const auto& [token, id] : tokens) ids[token] = static_cast<int32_t>(id);
  std::vector<int32_t> expected;
  for (const std::string& part : merge_by_definition(piece, merges)) expected.push_back(ids[part]);
  RC_ASSERT(encode({{"type", "BPE"}}, tokens, merges, piece) == expected);
}

TEST(Bpe, RemembersPiecesRightly) {
  const Vocabulary vocabulary({{"a", 0}, {"b", 1}, {"ab", 2}, {"aba", 3}}, "t.json");
  const json model = {{"type", "BPE"}};
  const Bpe bpe(test_node(model), vocabulary, {{"a", "b"}, {"ab", "a"}}, false);
  Bpe::Memory memory;
  std::vector<int32_t> ids;
  for (const char* piece : {"ab", "aba", "ab", "b", "aba", "ba"}) bpe.encode(piece, memory, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{2, 3, 2, 1, 3, 1, 0}));
}

TEST(Bpe, LongRunsTakeNoQuadraticTime) {
  const std::string run(200'000, 'a');
  const std::vector<int32_t> ids =
      encode({{"type", "BPE"}}, {{"a", 0}, {"aa", 1}, {"aaaa", 2}}, {{"a", "a"}, {"aa", "aa"}}, run);
  EXPECT_EQ(ids, std::vector<int32_t>(50'000, 2));
}

TEST(Bpe, IgnoreMergesTakesAWholePiece) {
  const Tokens tokens = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"abc", 4}};
  EXPECT_EQ(encode({{"type", "BPE"}}, tokens, {{"a", "b"}}, "abc"), (std::vector<int32_t>{3, 2}));
  EXPECT_EQ(encode({{"type", "BPE"}, {"ignore_merges", true}}, tokens, {{"a", "b"}}, "abc"), (std::vector<int32_t>{4}));
}

TEST(Bpe, UnknownCharactersBecomeBytesOrTheUnknown) {
  const Tokens tokens = {{"a", 0}, {"<unk>", 1}, {"<0xC3>", 2}, {"<0xA4>", 3}};
  json model = {{"type", "BPE"}};
  EXPECT_EQ(encode(model, tokens, {}, "axa"), (std::vector<int32_t>{0, 0})) << "left out without unk_token";
  model["unk_token"] = "<unk>";
  EXPECT_EQ(encode(model, tokens, {}, "axya"), (std::vector<int32_t>{0, 1, 1, 0}));
  model["fuse_unk"] = true;
  EXPECT_EQ(encode(model, tokens, {}, "axya"), (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(encode(model, tokens, {}, "\xC3\xA4"), (std::vector<int32_t>{1}));
  model["byte_fallback"] = true;
  EXPECT_EQ(encode(model, tokens, {}, "a\xC3\xA4x"), (std::vector<int32_t>{0, 2, 3, 1}));
  model["unk_token"] = "<none>";
  EXPECT_NE(error_of([&] { encode(model, tokens, {}, "x"); }).find("<none>"), std::string::npos);
}

TEST(Bpe, NamesBadMergesAndOptions) {
  const Tokens tokens = {{"a", 0}, {"b", 1}, {"ab", 2}};
  const json model = {{"type", "BPE"}};
  EXPECT_EQ(error_of([&] {
              encode(model, tokens, {{"a", "b"}, {"a", "x"}}, "");
            }),
            "t.json.merges[1]: 'x' is not in the vocabulary (merge of 'a' and 'x')");
  EXPECT_EQ(error_of([&] {
              encode(model, tokens, {{"b", "a"}}, "");
            }),
            "t.json.merges[0]: 'ba' is not in the vocabulary (merge of 'b' and 'a')");
  EXPECT_EQ(error_of([&] {
              encode(model, tokens, {{"a", "b"}, {"a", "b"}}, "");
            }),
            "t.json.merges[1]: 'a' and 'b' are given twice");
  EXPECT_EQ(error_of([&] {
              encode({{"type", "Unigram"}}, tokens, {}, "");
            }),
            "t.json: a model of type 'Unigram' is not supported (known: BPE)");
  EXPECT_EQ(error_of([&] {
              encode({{"type", "BPE"}, {"dropout", 0.1}}, tokens, {}, "");
            }),
            "t.json: dropout is not supported");
  EXPECT_EQ(error_of([&] {
              encode({{"type", "BPE"}, {"end_of_word_suffix", "</w>"}}, tokens, {}, "");
            }),
            "t.json: end_of_word_suffix '</w>' is not supported");
}

TEST(Vocabulary, RefusesDoubleAndWildIds) {
  EXPECT_EQ(error_of([] { Vocabulary({{"a", 0}, {"a", 1}}, "v"); }), "v: token 'a' is given twice");
  EXPECT_EQ(error_of([] { Vocabulary({{"a", 0}, {"b", 0}}, "v"); }), "v: id 0 is given to both 'a' and 'b'");
  EXPECT_NE(error_of([] { Vocabulary({{"a", -1}}, "v"); }).find("out of range"), std::string::npos);
  EXPECT_NE(error_of([] { Vocabulary({{"a", int64_t{1} << 40}}, "v"); }).find("out of range"), std::string::npos);
  const Vocabulary gaps({{"a", 5}}, "v");
  EXPECT_EQ(gaps.size(), 6);
  EXPECT_EQ(gaps.token(4), nullptr);
  EXPECT_EQ(*gaps.token(5), "a");
}

}  // namespace
}  // namespace focus
