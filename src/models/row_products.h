#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace focus {

/// x W^T + bias for a few rows and each of some weights, in bfloat16 or float16 on the CPU, sums in float32, rounded
/// once: x [M, K], weights [N, K] of one dtype, all with rows stored together, biases [N] or undefined for none -> [M,
/// N] each in the weights' dtype. Each weight is read once, so the time is that of reading memory.
std::vector<at::Tensor> row_products(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                     const std::vector<at::Tensor>& biases);

}  // namespace focus
