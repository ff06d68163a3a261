#pragma once

#include <string_view>

#include "tokenizer/json_node.h"
#include "tokenizer/pre_tokenizer.h"

namespace focus {

/// What becomes of the delimiters when a text is split at them.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// The field "behavior". Throws Error for an unknown one.
SplitBehavior read_behavior(const JsonNode& node);

/// Turns the stretches of a text (delimiters and what lies between, in order, without gaps) into pieces.
class Splitter {
 public:
  Splitter(std::string_view text, bool at_start, SplitBehavior behavior, const PieceSink& sink)
      : text_(text), at_start_(at_start), behavior_(behavior), sink_(sink) {}

  void add(size_t begin, size_t end, bool is_delimiter);
  /// To be called after the last stretch.
  void finish() { flush(); }

 private:
  void flush();

  std::string_view text_;
  bool at_start_;
  SplitBehavior behavior_;
  const PieceSink& sink_;
  // The piece that is not handed out yet: [begin_, end_).
  size_t begin_ = 0;
  size_t end_ = 0;
  bool last_was_delimiter_ = false;
};

}  // namespace focus
