#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat/value.h"

namespace focus::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// An expression of a template.
struct Expression {
  enum class Kind {
    kLiteral,    // literal
    kName,       // name
    kList,       // operands
    kDict,       // operands: key, value, key, value ...
    kAttribute,  // operands[0].name
    kItem,       // operands[0][operands[1]]
    kSlice,      // operands[0][operands[1]:operands[2]:operands[3]], absent ones null
    kCall,       // operands[0](operands[1 ...], named)
    kFilter,     // operands[0] | name(operands[1 ...], named)
    kTest,       // operands[0] is name(operands[1 ...])
    kUnary,      // name: not, -, +
    kBinary,     // name: and, or, ==, !=, <, <=, >, >=, in, not in, +, -, *, /, //, %, ~
    kTernary,    // operands[0] if operands[1] else operands[2], the last maybe null
  };
  Kind kind = Kind::kLiteral;
  int64_t line = 0;
  std::string name;
  Value literal;
  std::vector<ExpressionPtr> operands;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Statement;
using Body = std::vector<Statement>;

/// One branch of an if; no condition: else.
struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  enum class Kind { kText, kOutput, kIf, kFor, kSet, kBreak, kContinue };
  Kind kind = Kind::kText;
  int64_t line = 0;
  std::string text = {};                ///< kText.
  ExpressionPtr expression = {};        ///< kOutput, kFor (what is looped over), kSet (absent: the body's text).
  std::vector<std::string> names = {};  ///< kFor: loop variables; kSet: the name, or object and attribute.
  ExpressionPtr condition = {};         ///< kFor: `for ... if condition`.
  std::vector<Branch> branches = {};    ///< kIf; kFor: its body and maybe its else.
};

}  // namespace focus::jinja
