#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace focus {

/// Keys of one query: scattered positions, and a run begin .. end - 1 that none of them is in.
struct KeyChoice {
  std::vector<int32_t> scattered;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t count() const { return static_cast<int64_t>(scattered.size()) + end - begin; }
};

/// Attention of one new token over chosen keys, on the CPU: q [B, Hq, 1, D], keys [B, Hkv, T, D] and values [B, Hkv, T,
/// Dv] (innermost stride 1; float32, bfloat16, float16), chosen[b * sets + s] the keys of list set s (sets is 1 or
/// Hkv). Sums in float32; out [B, Hq, 1, Dv] in q's dtype; without any key it is 0. The cost is proportional to the
/// keys chosen; long choices are split among threads, with the same bits for any number of them. score = softcap(scale
/// * q.k). Holds no gradients.
at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const std::vector<KeyChoice>& chosen, int64_t sets, double scale, double softcap);

}  // namespace focus
