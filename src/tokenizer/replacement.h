#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/json_node.h"
#include "tokenizer/regex.h"

namespace focus {

/// The "pattern" field of a component, {"String": ...} or {"Regex": ...}, as an expression. Throws Error for another
/// form or an empty string.
Regex read_pattern(const JsonNode& component);

/// The component "Replace" of normalizers and decoders: puts "content" in the place of every match of "pattern".
class Replacement {
 public:
  explicit Replacement(const JsonNode& component);
  std::string apply(std::string_view text) const;

 private:
  std::string literal_;  // of a String pattern, else empty
  std::optional<Regex> regex_;
  std::string content_;
};

}  // namespace focus
