#include "generate/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace focus {

TextStream::TextStream(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt, std::vector<std::string> stops)
    : decoder_(tokenizer), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) fail_usage("--stop: the text is empty");
  }
  for (const int32_t id : prompt) decoder_.push(id);
}

std::string TextStream::push(int32_t id) {
  if (stopped_) return "";
  pending_ += decoder_.push(id);
  return release(/*end=*/false);
}

std::string TextStream::finish() {
  if (stopped_) return "";
  pending_ += decoder_.finish();
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
