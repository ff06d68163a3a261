#pragma once

#include <ATen/ATen.h>

namespace focus {

/// Whether float32 products of these are better left to oneDNN than to at::linear: on the CPU, many rows, no gradient
/// to be recorded, no autocast (which at::linear follows), and a processor for which MKL, behind at::linear, has its
/// general kernels only (not Intel's own).
bool prefers_onednn(const at::Tensor& x, const at::Tensor& weight);

/// x W^T + bias as at::linear gives it, by oneDNN: x [..., K], weight [N, K], bias [N] or undefined -> [..., N].
at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace focus
