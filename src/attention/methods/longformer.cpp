#include "attention/methods/longformer.h"

#include <vector>

#include "base/error.h"

namespace focus {

// The base attends the sinks and the query's own token; the window is chosen here, since it may be dilated.
Longformer::Longformer(const NearKeys& near, const Config& config)
    : FarKeyAttention({.window = 0, .sinks = near.sinks}), window_(near.window), config_(config) {
  if (window_ < 0) fail_usage("--window {}: expected 0 or more", window_);
  require(config.dilation > 0 && config.global_every >= 0, "longformer: dilation {} or global_every {} out of range",
          config.dilation, config.global_every);
}

FarKeyAttention::Chooser Longformer::chooser(const DocumentView& document) {
  const int64_t heads = document.q.size(0);
  const int64_t dilated = config_.dilated_heads.value_or(heads);
  require(dilated <= heads, "--dilated-heads {}: layer {} has {} KV heads", dilated, document.layer, heads);
  return [this, heads, dilated](const Tile& tile) {
    at::Tensor global = at::zeros_like(tile.visible);
    if (config_.global_every > 0) {
      const at::Tensor i = tile.positions().unsqueeze(1);
      const at::Tensor j = i - tile.distance;
      global = i.remainder(config_.global_every).eq(0).logical_or(j.remainder(config_.global_every).eq(0));
    }
    std::vector<at::Tensor> keep;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t step = h < dilated ? config_.dilation : 1;
      keep.push_back(tile.distance.le(window_ * step).logical_and(tile.distance.remainder(step).eq(0)));
    }
    return Choice{
        .keep = at::stack(keep).logical_or(global).unsqueeze(1), .bias = {}, .rest_weight = {}, .rest_value = {}};
  };
}

}  // namespace focus
