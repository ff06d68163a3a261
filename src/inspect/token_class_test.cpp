#include "inspect/token_class.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace focus {
namespace {

const std::string kSource = FOCUS_SOURCE_DIR;

TEST(TokenClass, FollowsTheSurfaceAndTheNeighbours) {
  struct Example {
    const char *previous, *text, *next;
    TokenClass expected;
  };
  const Example examples[] = {
      {"", "\n", "", TokenClass::kSpace},
      {"end.", "\n\n", "The", TokenClass::kSpace},
      {"word", ",", " and", TokenClass::kPunctuation},
      {"word", " \u201c", "I", TokenClass::kPunctuation},
      {"in ", "18", "90", TokenClass::kDigits},
      {" said", " the", " man", TokenClass::kDeterminer},
      {"\n", "The", " man", TokenClass::kDeterminer},
      {" went", " of", ".", TokenClass::kPreposition},
      {".", " When", " he", TokenClass::kConnective},
      {"\"", "I", " am", TokenClass::kPronoun},
      {" he", " would", " go", TokenClass::kAuxiliary},
      {" said", " Jennie", ".", TokenClass::kCapitalised},
      {" said", " Ger", "hardt", TokenClass::kCapitalised},
      {" Ger", "hardt", ",", TokenClass::kPiece},
      {" don", "'t", " know", TokenClass::kPiece},
      {" the", " the", "ory", TokenClass::kPiece},
      {" a", " house", ".", TokenClass::kOther},
      {" a", " house", "", TokenClass::kOther},
      {"", "\uFFFD", "", TokenClass::kOther},
      {"", " \u00c9mile", " said", TokenClass::kCapitalised},
      {"", "", "", TokenClass::kSpace},
  };
  for (const Example& e : examples) {
    EXPECT_EQ(classify_token(e.text, e.previous, e.next), e.expected) << '[' << e.text << ']';
  }
}

TEST(TokenTexts, KeepSpacesAndNameBytesThatAreNoCharacter) {
  const Tokenizer tokenizer = Tokenizer::load(kSource + "/data/tokenizers/smollm2");
  TokenTexts texts(tokenizer);
  EXPECT_EQ(texts.text(tokenizer.encode("a house", false).back()), " house");
  const std::vector<int32_t> pieces = tokenizer.encode("\U0001F9FF", false);  // several tokens, no whole character each
  ASSERT_GT(pieces.size(), 1u);
  EXPECT_TRUE(texts.label(pieces.front()).starts_with("<0xF0>")) << texts.label(pieces.front());
  EXPECT_THROW(texts.text(-1), Error);
  EXPECT_THROW(texts.text(tokenizer.vocab_size()), Error);
}

TEST(TokenTexts, KeepSpacesOfSentencePieceVocabularies) {
  const Tokenizer tokenizer = Tokenizer::load(kSource + "/data/models/stories260K");
  TokenTexts texts(tokenizer);
  EXPECT_EQ(texts.text(tokenizer.id_of("\u2581the").value()), " the");
  EXPECT_EQ(texts.text(tokenizer.id_of("<0x0A>").value()), "\n");
  EXPECT_EQ(texts.label(tokenizer.id_of("<0xE2>").value()), "<0xE2>");
}

TEST(TokenTexts, LabelsAreValidUtf8) {
  for (const char* folder : {"/data/tokenizers/smollm2", "/data/models/stories260K", "/data/tokenizers/mistral"}) {
    const Tokenizer tokenizer = Tokenizer::load(kSource + folder);
    TokenTexts texts(tokenizer);
    std::set<std::string> labels;
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      ASSERT_TRUE(is_valid_utf8(texts.label(id))) << folder << " id " << id;
      labels.insert(texts.label(id));
    }
    // Labels tell tokens apart, but for bytes that are characters of their own too.
    EXPECT_GT(labels.size() + 128, 0.99 * tokenizer.vocab_size()) << folder;
  }
}

TEST(TokenTexts, ClassesOfAText) {
  const Tokenizer tokenizer = Tokenizer::load(kSource + "/data/tokenizers/smollm2");
  TokenTexts texts(tokenizer);
  const std::vector<int32_t> ids = tokenizer.encode("Jennie was in the house.\n", false);
  const std::vector<TokenClass> classes = texts.classes(ids);
  ASSERT_EQ(classes.size(), ids.size());
  EXPECT_EQ(classes.front(), TokenClass::kCapitalised);
  EXPECT_THAT(std::vector(classes.end() - 6, classes.end()),
              ::testing::ElementsAre(TokenClass::kAuxiliary, TokenClass::kPreposition, TokenClass::kDeterminer,
                                     TokenClass::kOther, TokenClass::kPunctuation, TokenClass::kSpace));
}

}  // namespace
}  // namespace focus
