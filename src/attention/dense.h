#pragma once

#include <ATen/ATen.h>

#include "attention/op.h"

namespace focus {

/// Dense causal attention: attention() of op.h without lists (params.key_group must be absent) and without the lse.
/// Single tokens go to decode_attention, whole sequences under the plain causal mask to ATen's fused kernels; a layer
/// window, softcap, packed documents and chunks behind a cache go to the op. q [B, Hq, Tq, D], k and v [B, Hkv, Tk, D]
/// -> [B, Hq, Tq, D]. Differentiable.
at::Tensor dense_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionParams& params);

}  // namespace focus
