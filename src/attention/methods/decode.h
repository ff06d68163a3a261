#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace focus {

/// Attention of one new token over chosen keys, on the CPU: q [B, Hq, 1, D], keys and values [B, Hkv, T, D] (innermost
/// stride 1), positions[b * sets + s] the keys of list set s (sets is 1 or Hkv), each once, in any order. Sums in
/// float32; out [B, Hq, 1, D] in q's dtype; without any key it is 0. The cost is proportional to the keys chosen. score
/// = softcap(scale * q.k).
at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const std::vector<std::vector<int32_t>>& positions, int64_t sets, double scale,
                            double softcap);

}  // namespace focus
