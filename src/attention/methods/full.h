#pragma once

#include <memory>
#include <utility>

#include "attention/head_scales.h"
#include "attention/method.h"

namespace focus {

/// Dense causal attention (dense.h): the baseline, and the method of a model without an adapter. Honours the layer's
/// own window, softcap and packed documents.
class FullAttention : public AttentionMethod {
 public:
  /// With trained scalars for the heads of some layers, or without.
  explicit FullAttention(std::shared_ptr<const HeadScales> scales = nullptr) : scales_(std::move(scales)) {}

  std::string name() const override { return "full"; }
  at::Tensor attend(const AttentionInput& input) override;
  /// A KvCache.
  std::unique_ptr<LayerCache> make_cache(int64_t layer, int64_t batch, int64_t capacity) const override;
  PairCount pairs() const override { return pairs_; }
  /// Null where no head has any.
  const std::shared_ptr<const HeadScales>& scales() const { return scales_; }
  void reset_pairs() override { pairs_ = {}; }

 private:
  std::shared_ptr<const HeadScales> scales_;
  PairCount pairs_;
};

}  // namespace focus
