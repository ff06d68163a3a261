#pragma once

#include <ATen/ATen.h>

#include <utility>

namespace focus {

/// Sigma^(-1/2) and Sigma^(1/2), float32 [d, d] each, of a layer's hidden states with second moment E[h h^T] (not
/// centred, [d, d]); Sigma is the moment plus a ridge of 0.02 times its mean eigenvalue. Trained in whitened
/// coordinates (W = V Sigma^(-1/2)) an index keeps all its dimensions; in plain ones the few directions that every
/// hidden state shares take over and the keys' unit vectors collapse (docs/log.md).
struct Whitening {
  at::Tensor inverse_root;
  at::Tensor root;
};
Whitening whitening(const at::Tensor& second_moment);

/// Start of an index: the best rank-`group_dim` factors of the frozen query-key products, averaged over the query heads
/// of each head set. query_weight [Hq * D, d], key_weight [Hkv * D, d] (rows by head), float32, already times
/// Sigma^(1/2) for an index in whitened coordinates. Returns (query_projection, key_projection), each float32
/// [head_sets, group_dim, d] with entries of mean square 1 / d. head_sets is Hkv, or 1 to share one index (the products
/// of all heads are summed). If group_dim exceeds the rank, the remaining rows are small random numbers from
/// `generator`.
std::pair<at::Tensor, at::Tensor> svd_index(const at::Tensor& query_weight, const at::Tensor& key_weight,
                                            int64_t kv_heads, int64_t head_dim, int64_t head_sets, int64_t group_dim,
                                            at::Generator& generator);

}  // namespace focus
