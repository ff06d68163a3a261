#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/json_node.h"

namespace focus {

/// Receives tokens on their way to text. A token comes as any number of fragments of whole characters, then
/// end_token().
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void text(std::string_view fragment) = 0;
  virtual void end_token() = 0;
  /// No more tokens will come: hand on everything that was kept back.
  virtual void finish() = 0;
};

/// A way from tokens to text, one token at a time. Immutable; the running state lies in what connect() returns.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// A fresh start of this decoder that hands its tokens to `next`, which must outlive it.
  virtual std::unique_ptr<TokenSink> connect(TokenSink& next) const = 0;
};

/// The decoder of a tokenizer.json: Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace. Throws Error
/// naming any other type.
std::unique_ptr<Decoder> make_decoder(const JsonNode& node);
/// What is done when the file has no decoder: tokens with a space between.
std::unique_ptr<Decoder> make_spacing_decoder();

}  // namespace focus
