#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/tasks/task.h"
#include "tokenizer/tokenizer.h"

namespace focus {

/// Stretches of a long text that stand before or around what is asked.
class BookText {
 public:
  /// Throws Error when the text has fewer than `needed` tokens; `source` names it.
  BookText(const Tokenizer& tokenizer, const std::string& text, int64_t needed, const std::string& source);

  /// A stretch of about `tokens` tokens (all of the book, if it has no more), whole words, from a place that
  /// (seed, item) choose.
  std::string stretch(uint64_t seed, int64_t item, int64_t tokens) const;

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
};

struct PromptOptions {
  int64_t shots = 0;          ///< Worked examples before each item.
  int64_t prefix_tokens = 0;  ///< Tokens of book text before each item.
  uint64_t seed = 0;          ///< Chooses the examples and the stretch of the book.
};

/// All that stands before the continuation of an item (without the task's delimiter). The worked examples are the
/// task's own, in order, or drawn from the other items of the same group without repetition. Throws UsageError when
/// there are too few. `book` may be null without prefix_tokens.
std::string item_prompt(const Task& task, size_t item, const PromptOptions& options, const BookText* book);

}  // namespace focus
