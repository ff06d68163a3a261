#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "attention/method.h"

namespace focus {

/// Another method, with the time that its forward and its backward passes take. Backward passes are timed from the
/// moment when the output's gradient is there until those of queries, keys and values are: on the CPU autograd runs
/// what lies between in one go.
class TimedTraining : public AttentionMethod {
 public:
  /// `inner` must outlive this.
  explicit TimedTraining(AttentionMethod& inner) : inner_(inner) {}

  std::string name() const override { return inner_.name(); }
  bool is_causal() const override { return inner_.is_causal(); }
  at::Tensor attend(const AttentionInput& input) override;
  std::unique_ptr<LayerCache> make_cache(int64_t layer, int64_t batch, int64_t capacity) const override {
    return inner_.make_cache(layer, batch, capacity);
  }
  PairCount pairs() const override { return inner_.pairs(); }
  /// Forgets the times too.
  void reset_pairs() override;
  double forward_ms() const { return clock_.forward_ms; }
  double backward_ms() const { return clock_.backward_ms; }

  struct Clock {
    double forward_ms = 0, backward_ms = 0, backward_began = 0;
  };

 private:
  AttentionMethod& inner_;
  Clock clock_;
};

}  // namespace focus
