#include "generate/text_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"

namespace focus {

namespace {

/// The end of the prompt's text that a decoder of which `given` came out holds back; nothing if it ends inside a
/// character, which later tokens may complete.
std::string held_back(const Tokenizer& tokenizer, std::vector<int32_t> prompt, const std::string& given) {
  const std::string text = tokenizer.decode(prompt);
  if (text.size() <= given.size()) return "";
  // A byte that is a character of its own leaves whole characters before it as they are.
  const std::optional<int32_t> line_break = tokenizer.id_of("<0x0A>");
  if (!line_break) return "";
  prompt.push_back(*line_break);
  return tokenizer.decode(prompt) == text + "\n" ? text.substr(given.size()) : "";
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt, std::vector<std::string> stops)
    : decoder_(tokenizer), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) fail_usage("--stop: the text is empty");
  }
  std::string given;
  for (const int32_t id : prompt) given += decoder_.push(id);
  owed_ = held_back(tokenizer, prompt, given);
}

void TextStream::take(std::string text) {
  if (!owed_.empty() && !text.empty()) {
    // A run of bytes that is no UTF-8 as a whole comes as one U+FFFD (3 bytes) a byte.
    const size_t owed = text.starts_with(owed_) ? owed_.size() : 3 * owed_.size();
    text.erase(0, std::min(owed, text.size()));
    owed_.clear();
  }
  pending_ += text;
}

std::string TextStream::push(int32_t id) {
  if (stopped_) return "";
  take(decoder_.push(id));
  return release(/*end=*/false);
}

std::string TextStream::finish() {
  if (stopped_) return "";
  take(decoder_.finish());
  return release(/*end=*/true);
}

std::string TextStream::release(bool end) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, pending_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    pending_.resize(first);
    return std::exchange(pending_, "");
  }
  // The longest end that begins a stop string stays.
  size_t kept = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, pending_.size()); length > kept; --length) {
      if (stop.compare(0, length, pending_, pending_.size() - length, length) == 0) kept = length;
    }
  }
  if (end) kept = 0;
  std::string certain = pending_.substr(0, pending_.size() - kept);
  pending_.erase(0, certain.size());
  return certain;
}

}  // namespace focus
