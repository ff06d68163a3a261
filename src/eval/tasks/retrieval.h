#pragma once

#include <cstdint>
#include <string>

#include "eval/tasks/prompts.h"
#include "eval/tasks/task.h"
#include "tokenizer/tokenizer.h"

namespace focus {

struct RetrievalOptions {
  int64_t items = 50;
  int64_t keys = 1;       ///< Sentences with a number that stand in the text; one of them is asked for.
  int64_t length = 2048;  ///< Tokens of text, question and answer, at most; less than 32 fewer.
  uint64_t seed = 0;
};

/// Finding a number in a long text: stretches of a book with sentences "The magic number of KEY is NUMBER." between its
/// own, the one asked for at depths spread evenly over the items; then the question. Right is an item when greedy
/// decoding would write the whole number. The same options give the same items. Throws UsageError when `length` is too
/// short for the sentences, or more keys are asked for than there are names.
Task make_retrieval(const std::string& name, const BookText& book, const Tokenizer& tokenizer,
                    const RetrievalOptions& options);

}  // namespace focus
