#include "tokenizer/split.h"

#include <string>

namespace focus {

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string name = node.text("behavior");
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  fail(
      "{}: split behavior '{}' is not supported (known: Removed, Isolated, MergedWithPrevious, MergedWithNext, "
      "Contiguous)",
      node.where(), name);
}

void Splitter::flush() {
  if (begin_ < end_) sink_(text_.substr(begin_, end_ - begin_), at_start_ && begin_ == 0);
}

void Splitter::add(size_t begin, size_t end, bool is_delimiter) {
  bool joins = false;  // whether this stretch continues the piece before it
  switch (behavior_) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kMergedWithPrevious:
      joins = is_delimiter && !last_was_delimiter_;
      break;
    case SplitBehavior::kMergedWithNext:
      joins = !is_delimiter && last_was_delimiter_;
      break;
    case SplitBehavior::kContiguous:
      joins = is_delimiter == last_was_delimiter_;
      break;
  }
  last_was_delimiter_ = is_delimiter;
  if (joins && begin_ < end_) {
    end_ = end;
    return;
  }
  flush();
  begin_ = begin;
  end_ = is_delimiter && behavior_ == SplitBehavior::kRemoved ? begin : end;
}

}  // namespace focus
