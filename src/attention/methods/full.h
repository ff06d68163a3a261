#pragma once

#include "attention/method.h"

namespace focus {

/// Dense causal attention: the baseline, and the method of a model without an adapter. Honours the layer's own window,
/// softcap and packed documents. Memory is at most a few hundred query rows by Tk.
class FullAttention : public AttentionMethod {
 public:
  std::string name() const override { return "full"; }
  at::Tensor attend(const AttentionInput& input) override;
  /// A KvCache.
  std::unique_ptr<LayerCache> make_cache(int64_t layer, int64_t batch, int64_t capacity) const override;
  PairCount pairs() const override { return pairs_; }
  void reset_pairs() override { pairs_ = {}; }

 private:
  PairCount pairs_;
};

}  // namespace focus
