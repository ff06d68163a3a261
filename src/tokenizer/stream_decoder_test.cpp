#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tokenizer/test_files.h"
#include "tokenizer/unicode.h"

namespace focus {
namespace {

const Tokenizer& byte_level() {
  static const Tokenizer tokenizer = Tokenizer::load(project_root() / "data/tokenizers/smollm2");
  return tokenizer;
}

const Tokenizer& byte_fallback() {
  static const Tokenizer tokenizer = Tokenizer::load(project_root() / "data/models/stories260K/tokenizer.json");
  return tokenizer;
}

void check_random_ids(const Tokenizer& tokenizer) {
  const auto ids = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(0, tokenizer.vocab_size()));
  for (const bool skip : {false, true}) {
    StreamDecoder stream(tokenizer, skip);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string piece = stream.push(id);
      RC_ASSERT(is_valid_utf8(piece));
      joined += piece;
    }
    joined += stream.finish();
    RC_ASSERT(joined == tokenizer.decode(ids, skip));
  }
}

RC_GTEST_PROP(StreamDecoder, PiecesJoinToTheTextByteLevel, ()) {
  check_random_ids(byte_level());
}
RC_GTEST_PROP(StreamDecoder, PiecesJoinToTheTextByteFallback, ()) {
  check_random_ids(byte_fallback());
}

TEST(StreamDecoder, KeepsBackHalfACharacter) {
  const std::vector<int32_t> ids = byte_level().encode("\xF0\x9F\xA6\x99", false);
  ASSERT_GT(ids.size(), 1u);
  StreamDecoder stream(byte_level());
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(stream.push(ids[i]), "");
  EXPECT_EQ(stream.push(ids.back()), "\xF0\x9F\xA6\x99");
  EXPECT_EQ(stream.finish(), "");
  stream.push(ids[0]);
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "") << "a finished stream begins anew";
}

TEST(StreamDecoder, GivesWordsAtOnce) {
  StreamDecoder stream(byte_fallback());
  std::vector<std::string> pieces;
  for (const int32_t id : byte_fallback().encode("Once upon", true)) pieces.push_back(stream.push(id));
  EXPECT_EQ(pieces.front(), "") << "<s> is left out";
  EXPECT_EQ(stream.finish(), "") << "nothing is kept until the end";
}

TEST(Tokenizer, SpecialTokensAreFoundAndLeftOut) {
  const Tokenizer& t = byte_level();
  const int32_t start = *t.id_of("<|im_start|>");
  EXPECT_TRUE(t.is_special(start));
  EXPECT_FALSE(t.is_special(100));
  EXPECT_FALSE(t.is_special(-1));
  const std::vector<int32_t> ids = t.encode("<|im_start|>user", false);
  EXPECT_EQ(ids.front(), start);
  EXPECT_EQ(t.decode(ids), "user");
  EXPECT_EQ(t.decode(ids, false), "<|im_start|>user");
  EXPECT_EQ(t.id_of("no such token"), std::nullopt);
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  const Tokenizer& t = byte_fallback();
  for (const int32_t id : {-1, t.vocab_size(), 1 << 30}) {
    EXPECT_NE(error_of([&] { t.decode(std::vector<int32_t>{5, id}); }).find(std::to_string(id)), std::string::npos);
    EXPECT_THROW(t.token_of(id), Error);
  }
}

TEST(Tokenizer, InvalidUtf8BecomesTheReplacementCharacter) {
  const Tokenizer& t = byte_level();
  EXPECT_EQ(t.encode("a\xFF\xC3", false), t.encode("a\xEF\xBF\xBD\xEF\xBF\xBD", false));
  EXPECT_EQ(t.decode(t.encode(std::string_view("a\0b", 3), false)), std::string("a\0b", 3));
}

}  // namespace
}  // namespace focus
