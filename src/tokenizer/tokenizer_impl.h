#pragma once

#include <memory>
#include <string>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/vocabulary.h"

namespace focus {

/// The components of one tokenizer.json.
struct Tokenizer::Impl {
  /// Throws Error as Tokenizer::load does.
  explicit Impl(TokenizerFile file);

  /// The token of an id, or null.
  const std::string* find_token(int32_t id) const;

  std::string name;  // of the file, for messages
  Vocabulary vocabulary;
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null
  AddedTokens added;
  Bpe bpe;
  SpecialTokens special;
  std::unique_ptr<Decoder> decoder;
  int32_t size;
};

}  // namespace focus
