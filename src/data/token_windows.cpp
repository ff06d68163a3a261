#include "data/token_windows.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "data/split_mix.h"

namespace focus {

namespace {

/// FNV-1a over the values.
uint64_t hash(std::span<const int32_t> values, uint64_t state) {
  for (const int32_t value : values) state = (state ^ static_cast<uint32_t>(value)) * 0x100000001B3u;
  return state;
}

int64_t size_of(const Document& document) {
  return static_cast<int64_t>(document.size());
}

}  // namespace

int64_t require_tokens(std::span<const Document> documents, int64_t needed, const std::string& source) {
  int64_t total = 0;
  for (const Document& document : documents) total += size_of(document);
  if (total < needed) fail("{}: {} tokens of text, expected at least {}", source, total, needed);
  return total;
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

TrainWindows::TrainWindows(std::span<const Document> documents, int64_t length, uint64_t seed,
                           const std::string& source)
    : length_(length), seed_(seed) {
  require(length >= 1, "training windows of {} tokens: expected at least 1", length);
  require_tokens(documents, length, source);
  std::vector<int32_t> rest_ids, rest_starts;
  for (const Document& document : documents) {
    const int64_t whole = size_of(document) / length * length;
    ids_.insert(ids_.end(), document.begin(), document.begin() + whole);
    starts_.insert(starts_.end(), static_cast<size_t>(whole), 0);
    // Positions in rest_ids where each document's rest begins; relative to a window further below.
    rest_starts.insert(rest_starts.end(), static_cast<size_t>(size_of(document) - whole),
                       static_cast<int32_t>(rest_ids.size()));
    rest_ids.insert(rest_ids.end(), document.begin() + whole, document.end());
  }
  const int64_t packed = static_cast<int64_t>(rest_ids.size()) / length * length;
  for (int64_t i = 0; i < packed; ++i) {
    const int64_t window_begin = i / length * length;
    ids_.push_back(rest_ids[static_cast<size_t>(i)]);
    // A rest that continues from the window before starts at 0.
    starts_.push_back(static_cast<int32_t>(std::max<int64_t>(rest_starts[static_cast<size_t>(i)] - window_begin, 0)));
  }
  fingerprint_ = hash(starts_, hash(ids_, 0xCBF29CE484222325u));
  order_.resize(ids_.size() / static_cast<size_t>(length));
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
  const int64_t begin = order_[static_cast<size_t>(position_ % windows_per_epoch())] * length_;
  ++position_;
  const auto at = [&](const std::vector<int32_t>& values) {
    return std::vector<int32_t>(values.begin() + begin, values.begin() + begin + length_);
  };
  return {at(ids_), at(starts_)};
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
          {"data", fmt::format("{:016x}", fingerprint_)}};
}

void TrainWindows::restore(const nlohmann::json& state) {
  const nlohmann::json mine = this->state();
  for (const char* key : {"length", "seed", "windows_per_epoch", "data"}) {
    const nlohmann::json saved = state.value(key, nlohmann::json());
    if (saved != mine[key]) {
      fail("resume: the training data's {} differs: {} when saved, {} now", key, saved.dump(), mine[key].dump());
    }
  }
  const nlohmann::json position = state.value("position", nlohmann::json());
  if (!position.is_number_integer() || position.get<int64_t>() < 0)
    fail("resume: no valid position in the saved state");
  position_ = position.get<int64_t>();
}

}  // namespace focus
