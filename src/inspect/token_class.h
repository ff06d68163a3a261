#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace focus {

/// Surface classes of tokens, by which the purity of lists is measured. Function words (determiners to auxiliaries)
/// come from small lists of English words; a word that fits several is counted under the first of them.
enum class TokenClass : uint8_t {
  kSpace,        ///< White space and line breaks only.
  kPunctuation,  ///< No letter or digit.
  kDigits,
  kDeterminer,
  kPreposition,
  kConnective,  ///< Conjunctions, relative and question words.
  kPronoun,
  kAuxiliary,    ///< Auxiliary verbs and negation.
  kCapitalised,  ///< A word, or the start of one, with a capital, unless a function word.
  kPiece,        ///< Another part of a word that was split into several tokens.
  kOther,        ///< Whole lower-case words, special tokens, incomplete characters.
};

inline constexpr int64_t kTokenClasses = 11;

/// Names of the classes in their order, as in reports.
const std::array<const char*, kTokenClasses>& token_class_names();

/// Class of a token's text (with the spaces before it) between its neighbours' texts; empty where there is none.
TokenClass classify_token(std::string_view text, std::string_view previous, std::string_view next);

/// Texts of single tokens, remembered by id. The tokenizer must outlive it.
class TokenTexts {
 public:
  explicit TokenTexts(const Tokenizer& tokenizer);

  /// What the token adds behind another word, its leading space included; U+FFFD for bytes that make no character.
  const std::string& text(int32_t id);
  /// The same for people: a token that makes no whole character is given by its bytes, <0xE2><0x80>. Valid UTF-8.
  const std::string& label(int32_t id);
  /// Classes of all tokens of a text, special tokens as kOther.
  std::vector<TokenClass> classes(std::span<const int32_t> ids);

 private:
  struct Entry {
    bool known = false;
    std::string text, label;
  };
  const Entry& entry(int32_t id);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> anchor_;  // a word to decode behind, so that the space before a token is kept
  std::string anchor_text_;
  std::vector<Entry> entries_;
};

}  // namespace focus
