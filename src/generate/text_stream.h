#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace focus {

/// The text of one continuation as its tokens come, cut off where a stop string begins. Hands out only what is certain:
/// neither half a character nor what may turn out to be the start of a stop string.
class TextStream {
 public:
  /// The prompt is context for the decoder, not output: what of its text becomes certain only with later tokens (bytes
  /// at its end, under ByteFallback) does not come out either, unless it ends inside a character. The tokenizer must
  /// outlive this. Throws UsageError for an empty stop string.
  TextStream(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt, std::vector<std::string> stops);

  /// The text that became certain with this id, maybe empty; nothing more once a stop string has come.
  std::string push(int32_t id);
  /// What was held back at the end.
  std::string finish();
  /// A stop string has come.
  bool stopped() const { return stopped_; }

 private:
  /// Adds text that the decoder gave, without what the prompt owed.
  void take(std::string text);
  /// Moves what is certain out of pending_; everything at the `end`.
  std::string release(bool end);

  StreamDecoder decoder_;
  std::string owed_;  // The end of the prompt's text that the decoder still holds back.
  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace focus
