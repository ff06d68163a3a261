#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>

namespace focus {

/// Two trained scalars for each query head of a layer, beside the frozen weights: float32 [Hq].
struct HeadScale {
  at::Tensor score_factor;  ///< Multiplies the scores before the softcap: an inverse temperature.
  at::Tensor output_gain;   ///< Multiplies what the head reads, before the block's output projection.

  /// All ones, which change nothing.
  static HeadScale ones(int64_t heads);
};

/// By layer; a layer without an entry is as the model has it.
using HeadScales = std::map<int64_t, HeadScale>;

/// The entry of a layer, null if there is none (or no map).
const HeadScale* find_scale(const std::shared_ptr<const HeadScales>& scales, int64_t layer);

/// q [B, Hq, T, D] times score_factor, in q's dtype: one pass over q, the product is in float32. Differentiable in
/// both. Throws Error when the heads do not fit.
at::Tensor scale_queries(const at::Tensor& q, const HeadScale& scale);

/// out [B, Hq, T, D] times output_gain, in out's dtype; written over `out` unless gradients are recorded.
at::Tensor scale_outputs(const at::Tensor& out, const HeadScale& scale);

}  // namespace focus
