#pragma once

#include <ATen/ATen.h>

#include "attention/op.h"

namespace focus {

/// Dense causal attention by ATen's own kernels: attention() without key_group (params.key_group must be absent), same
/// shapes, alignment and treatment of rows without keys, without the lse. Uses fused SDPA over the whole triangle where
/// the mask is the plain causal one, else over chunks of query rows with a small mask. Differentiable.
at::Tensor dense_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionParams& params);

}  // namespace focus
