#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/json_node.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/vocabulary.h"

namespace focus {

/// One entry of "added_tokens".
struct AddedToken {
  int32_t id;
  std::string content;
  std::string text;  // what it decodes to: the content, normalized if it is looked for in the normalized text
  bool single_word;  // only where no letter of a word touches it
  bool lstrip;       // swallows the white space to its left
  bool rstrip;       // and to its right
  bool normalized;   // looked for in the normalized text
  bool special;
};

/// A stretch of a text: an added token, or text between (id -1).
struct AddedTokenSpan {
  int32_t id;
  size_t begin;
  size_t end;
};

/// A search for the longest of many strings, from the left.
class StringTrie {
 public:
  StringTrie();
  /// The first of equal strings counts.
  void add(std::string_view text, int32_t value);
  struct Match {
    size_t begin;
    size_t end;
    int32_t value;
  };
  /// The leftmost match, the longest of those, at or behind `from`.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, int32_t>> children;
    int32_t value = -1;
  };
  const int32_t* child(const Node& node, unsigned char byte) const;
  std::vector<Node> nodes_;
  std::vector<int32_t> roots_;  // the children of the root by byte, -1 for none
};

/// The tokens that are found in the text before anything else happens to it.
class AddedTokens {
 public:
  /// `file` is the whole document; its field "added_tokens" may be missing. Throws Error for a token or id given twice,
  /// and an id that contradicts the vocabulary.
  AddedTokens(const JsonNode& file, const Vocabulary& vocabulary, const Normalizer* normalizer);

  /// Cuts a text at the tokens that are looked for in the text as it is (normalized = false) or in the normalized text.
  std::vector<AddedTokenSpan> split(std::string_view text, bool normalized) const;
  bool any(bool normalized) const { return normalized ? has_normalized_ : has_plain_; }
  std::optional<int32_t> find(std::string_view token) const;
  const AddedToken* token(int32_t id) const;
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string_view, size_t> by_content_;
  std::unordered_map<int32_t, size_t> by_id_;
  bool has_plain_ = false;
  bool has_normalized_ = false;
  StringTrie plain_;
  StringTrie normalized_;
};

}  // namespace focus
