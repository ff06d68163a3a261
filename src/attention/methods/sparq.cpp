#include "attention/methods/sparq.h"

#include <limits>

#include "base/error.h"

namespace focus {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Softmax over the visible keys of the scores by the largest components alone, [Hkv, G, n, t].
at::Tensor approximate_weights(const Tile& tile, int64_t components, double scale, double softcap) {
  const at::Tensor q = tile.q.detach();
  const at::Tensor size = q.abs();
  const at::Tensor part = q * largest(size.sum(1, true), components);  // the same components for a group
  const at::Tensor share = part.abs().sum(-1, true) / size.sum(-1, true).clamp_min(1e-30);
  at::Tensor scores =
      at::matmul(part, tile.k.detach().unsqueeze(1).transpose(-1, -2)) * (scale / share.clamp_min(1e-30).sqrt());
  if (softcap > 0) scores = (scores / softcap).tanh() * softcap;
  return scores.masked_fill(tile.visible.logical_not(), kMinusInfinity).softmax(-1);
}

}  // namespace

Sparq::Sparq(const NearKeys& near, int64_t components, int64_t top_keys, bool mean_reallocation)
    : FarKeyAttention(near), components_(components), top_keys_(top_keys), mean_reallocation_(mean_reallocation) {
  require(components > 0 && top_keys >= 0, "sparq: components {} or top_keys {} out of range", components, top_keys);
}

FarKeyAttention::Chooser Sparq::chooser(const DocumentView& document) {
  const int64_t dim = document.q.size(-1);
  require(components_ <= dim, "--query-components {}: the heads of layer {} have {} components", components_,
          document.layer, dim);
  return [this, scale = document.scale, softcap = document.softcap](const Tile& tile) {
    const at::Tensor weights = approximate_weights(tile, components_, scale, softcap);
    Choice choice;
    choice.keep = largest(weights.sum(1, true).masked_fill(tile.far.logical_not(), kMinusInfinity), top_keys_);
    if (!mean_reallocation_) return choice;
    const at::Tensor attended = choice.keep.logical_or(tile.near);
    choice.rest_weight = 1 - (weights * attended).sum(-1, true);
    const at::Tensor seen = tile.visible.to(tile.v.scalar_type());
    choice.rest_value = at::matmul(seen / seen.sum(-1, true), tile.v).unsqueeze(1);
    return choice;
  };
}

}  // namespace focus
