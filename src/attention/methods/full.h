#pragma once

#include "attention/method.h"

namespace focus {

/// Dense causal attention (dense.h): the baseline, and the method of a model without an adapter. Honours the layer's
/// own window, softcap and packed documents.
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
