#pragma once

#include <ATen/ATen.h>

#include <utility>

namespace focus {

/// Start of an index: the best rank-`group_dim` factors of the frozen query-key products, averaged over the query heads
/// of each head set. query_weight [Hq * D, d], key_weight [Hkv * D, d] (rows by head), both float32; mean_hidden [d] is
/// removed from both sides, since the direction all tokens share says nothing about which key is meant. Returns
/// (query_projection, key_projection), each float32 [head_sets, group_dim, d] with entries of mean square 1 / d.
/// head_sets is Hkv, or 1 to share one index (averages over all heads). If group_dim exceeds the rank (the head size),
/// the remaining rows are small random numbers from `generator`.
std::pair<at::Tensor, at::Tensor> svd_index(const at::Tensor& query_weight, const at::Tensor& key_weight,
                                            int64_t kv_heads, int64_t head_dim, int64_t head_sets, int64_t group_dim,
                                            const at::Tensor& mean_hidden, at::Generator& generator);

}  // namespace focus
