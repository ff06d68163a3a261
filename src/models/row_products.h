#pragma once

#include <ATen/ATen.h>

namespace focus {

/// x W^T for a few rows in bfloat16 or float16 on the CPU, sums in float32, rounded once: x [M, K], weight [N, K], both
/// with rows stored together -> [M, N] in the weight's dtype. Each weight is read once, so the time is that of reading
/// memory.
at::Tensor row_products(const at::Tensor& x, const at::Tensor& weight);

}  // namespace focus
