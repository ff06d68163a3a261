#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace focus::jinja {

/// A piece of a template.
struct Token {
  enum class Kind {
    kText,
    kBlockBegin,
    kBlockEnd,
    kOutputBegin,
    kOutputEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kSymbol,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;  ///< Of strings: unescaped.
  int64_t line = 1;
};

/// Splits a template as Jinja does with trim_blocks and lstrip_blocks, as transformers sets them; line ends of other
/// systems become \n, inside strings too. Throws Error naming
/// the line and what is not closed or not known.
std::vector<Token> tokenize(const std::string& source);

}  // namespace focus::jinja
