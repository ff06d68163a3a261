#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "tokenizer/json_node.h"

namespace focus {

/// Receives one piece; `at_start` says that it begins where the whole text begins.
using PieceSink = std::function<void(std::string_view piece, bool at_start)>;

/// Splits a text into the pieces that no token may cross. Immutable.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Hands the non-empty pieces of `text` to `sink` in order; a piece is only valid during the call.
  virtual void split(std::string_view text, bool at_start, const PieceSink& sink) const = 0;
  /// Whether the pieces are raw bytes that stand for byte-level characters (see byte_level.h), not text. It saves the
  /// way through the characters when ByteLevel comes last.
  virtual bool yields_bytes() const { return false; }
};

/// The pre-tokenizer of a tokenizer.json: Sequence, ByteLevel, Split, Digits, Metaspace. Throws Error naming any other
/// type or split behaviour.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonNode& node);

}  // namespace focus
