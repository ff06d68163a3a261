#pragma once

#include <ATen/ATen.h>

#include "models/layers.h"

namespace focus {

/// The small steps of a block in one go over each row, on the CPU, without gradients: of a single token they would
/// otherwise cost as much as reading its weights.

/// Whether these functions take the tensor: on the CPU, float32, bfloat16 or float16, rows stored together, no gradient
/// to be recorded.
bool can_fuse_rows(const at::Tensor& x);

/// rms_norm() of layers.h over the last dimension; without weight where it is undefined. The weight has x's dtype.
at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, NormWeight kind);

/// Rope::apply() in x's dtype, computed in float32 and rounded once: x [B, H, T, D], cos and sin [B, 1, T, D/2] in one
/// dtype of the three.
at::Tensor fused_rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace focus
