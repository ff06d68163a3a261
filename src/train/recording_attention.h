#pragma once

#include <functional>
#include <memory>
#include <string>

#include "attention/method.h"
#include "attention/methods/full.h"

namespace focus {

/// Full attention that shows every layer's inputs to a listener: how training sees a frozen model without touching it.
class RecordingAttention : public AttentionMethod {
 public:
  explicit RecordingAttention(std::function<void(const AttentionInput&)> listener) : listener_(std::move(listener)) {}

  std::string name() const override { return full_.name(); }
  at::Tensor attend(const AttentionInput& input) override {
    listener_(input);
    return full_.attend(input);
  }
  std::unique_ptr<LayerCache> make_cache(int64_t layer, int64_t batch, int64_t capacity) const override {
    return full_.make_cache(layer, batch, capacity);
  }
  PairCount pairs() const override { return full_.pairs(); }
  void reset_pairs() override { full_.reset_pairs(); }

 private:
  std::function<void(const AttentionInput&)> listener_;
  FullAttention full_;
};

}  // namespace focus
