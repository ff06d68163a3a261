#pragma once

#include <ATen/ATen.h>

#include "attention/op.h"

namespace focus {

/// Dense causal attention: attention() of op.h without lists (params.key_group must be absent) and without the lse.
/// Single tokens go to decode_attention, what ATen's fused kernels can do on other devices and
/// dtypes than float32 and bfloat16 on the CPU to them, all else to the op. q [B, Hq, Tq, D], keys and values [B, Hkv,
/// Tk, D] -> [B, Hq, Tq, D]; those of another dtype than q, from a cache, are read as q's. Differentiable.
at::Tensor dense_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                           const AttentionParams& params);

}  // namespace focus
