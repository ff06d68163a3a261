#include "data/token_windows.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/json_text.h"
#include "data/split_mix.h"

namespace focus {

namespace {

int64_t size_of(const Document& document) {
  return static_cast<int64_t>(document.size());
}

}  // namespace

namespace {

int64_t require_enough(int64_t total, int64_t needed, const std::string& name) {
  if (total < needed) fail("{}: {} tokens of text, expected at least {}", name, total, needed);
  return total;
}

}  // namespace

int64_t require_tokens(const TokenSource& source, int64_t needed, const std::string& name) {
  return require_enough(source.tokens(), needed, name);
}

int64_t require_tokens(std::span<const Document> documents, int64_t needed, const std::string& name) {
  int64_t total = 0;
  for (const Document& document : documents) total += size_of(document);
  return require_enough(total, needed, name);
}

std::vector<EvalWindow> eval_windows(std::span<const Document> documents, int64_t context, int64_t stride) {
  if (context < 2) fail_usage("--context {}: expected at least 2", context);
  if (stride < 1 || stride > context) {
    fail_usage("--stride {}: expected at least 1 and at most the context, {}", stride, context);
  }
  std::vector<EvalWindow> windows;
  for (size_t d = 0; d < documents.size(); ++d) {
    const int64_t length = size_of(documents[d]);
    int64_t scored_until = 1;
    for (int64_t begin = 0; scored_until < length; begin += stride) {
      const int64_t end = std::min(begin + context, length);
      const int64_t scored = std::min(end - scored_until, end - begin - 1);
      if (scored > 0) windows.push_back({static_cast<int64_t>(d), begin, end, scored});
      scored_until = end;
    }
  }
  return windows;
}

TrainWindows::TrainWindows(std::span<const Document> documents, int64_t length, uint64_t seed, const std::string& name)
    : TrainWindows(std::make_shared<MemoryTokens>(documents), length, seed, name) {}

TrainWindows::TrainWindows(std::shared_ptr<const TokenSource> source, int64_t length, uint64_t seed,
                           const std::string& name)
    : source_(std::move(source)), length_(length), seed_(seed), whole_before_{0}, rest_before_{0} {
  require(length >= 1, "training windows of {} tokens: expected at least 1", length);
  require_tokens(*source_, length, name);
  for (int64_t d = 0; d < source_->documents(); ++d) {
    const int64_t tokens = source_->length(d);
    whole_before_.push_back(whole_before_.back() + tokens / length);
    rest_before_.push_back(rest_before_.back() + tokens % length);
  }
  order_.resize(static_cast<size_t>(whole_before_.back() + rest_before_.back() / length));
}

TrainWindows::Window TrainWindows::window(int64_t index) const {
  Window result;
  result.ids.resize(static_cast<size_t>(length_));
  result.document_start.assign(static_cast<size_t>(length_), 0);
  /// The document that the item of this number belongs to.
  const auto owner = [](const std::vector<int64_t>& before, int64_t item) {
    return std::upper_bound(before.begin(), before.end(), item) - before.begin() - 1;
  };
  if (index < whole_before_.back()) {
    const int64_t d = owner(whole_before_, index);
    source_->read(d, (index - whole_before_[d]) * length_, result.ids);
    return result;
  }
  // A window of rests, one after another.
  const int64_t begin = (index - whole_before_.back()) * length_;
  int64_t done = 0;
  for (int64_t d = owner(rest_before_, begin); done < length_; ++d) {
    const int64_t in_rest = begin + done - rest_before_[d];
    const int64_t count = std::min(rest_before_[d + 1] - (begin + done), length_ - done);
    const int64_t whole = (whole_before_[d + 1] - whole_before_[d]) * length_;
    source_->read(d, whole + in_rest, std::span(result.ids).subspan(done, count));
    // A rest that continues from the window before starts at 0.
    const auto start = static_cast<int32_t>(std::max<int64_t>(rest_before_[d] - begin, 0));
    std::fill_n(result.document_start.begin() + done, count, start);
    done += count;
  }
  return result;
}

void TrainWindows::shuffle(int64_t epoch) {
  std::iota(order_.begin(), order_.end(), int64_t{0});
  SplitMix mix(seed_);
  SplitMix random(mix.next() + static_cast<uint64_t>(epoch));
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
  shuffled_epoch_ = epoch;
}

TrainWindows::Window TrainWindows::next() {
  if (shuffled_epoch_ != epoch()) shuffle(epoch());
  return window(order_[static_cast<size_t>(position_++ % windows_per_epoch())]);
}

void TrainWindows::skip(int64_t count) {
  require(count >= 0, "{} windows cannot be skipped", count);
  position_ += count;
}

nlohmann::json TrainWindows::state() const {
  return {{"position", position_},
          {"length", length_},
          {"seed", seed_},
          {"windows_per_epoch", windows_per_epoch()},
          {"data", fmt::format("{:016x}", source_->fingerprint())}};
}

void TrainWindows::restore(const nlohmann::json& state) {
  const nlohmann::json mine = this->state();
  for (const char* key : {"length", "seed", "windows_per_epoch", "data"}) {
    const nlohmann::json saved = state.value(key, nlohmann::json());
    if (saved != mine[key]) {
      fail("resume: the training data's {} differs: {} when saved, {} now", key, json_text(saved),
           json_text(mine[key]));
    }
  }
  const nlohmann::json position = state.value("position", nlohmann::json());
  if (!position.is_number_integer() || position.get<int64_t>() < 0)
    fail("resume: no valid position in the saved state");
  position_ = position.get<int64_t>();
}

}  // namespace focus
