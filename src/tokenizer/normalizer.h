#pragma once

#include <memory>
#include <string>

#include "tokenizer/json_node.h"

namespace focus {

/// A change of the text before it is split. Immutable.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Changes valid UTF-8 into valid UTF-8.
  virtual void apply(std::string& text) const = 0;
};

/// The normalizer of a tokenizer.json: Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip,
/// StripAccents, ByteLevel. Throws Error naming any other type.
std::unique_ptr<Normalizer> make_normalizer(const JsonNode& node);

}  // namespace focus
