#include "train/index_init.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace focus {

namespace {

constexpr double kRidge = 0.02;

/// Rows [group_dim, d] scaled to mean square 1 / d; directions beyond the rank are filled with small random ones.
at::Tensor finish(const at::Tensor& columns, int64_t group_dim, at::Generator& generator) {
  const int64_t d = columns.size(0), rank = std::min(columns.size(1), group_dim);
  const double unit = 1.0 / std::sqrt(static_cast<double>(d));
  at::Tensor rows = columns.narrow(1, 0, rank).t();
  rows = rows * (unit / rows.square().mean().sqrt().clamp_min(1e-12));
  if (rank < group_dim) {
    rows = at::cat({rows, at::randn({group_dim - rank, d}, generator, rows.options()) * (0.1 * unit)});
  }
  return rows.contiguous();
}

}  // namespace

Whitening whitening(const at::Tensor& second_moment) {
  const at::NoGradGuard no_grad;
  // Double precision: small eigenvalues matter here.
  const auto [values, vectors] = at::linalg_eigh(second_moment.to(at::kDouble), "L");
  const at::Tensor raised = values.clamp_min(0) + kRidge * values.mean() + 1e-12;
  const at::Tensor root = raised.sqrt();
  return {.inverse_root = at::matmul(vectors / root, vectors.t()).to(at::kFloat).contiguous(),
          .root = at::matmul(vectors * root, vectors.t()).to(at::kFloat).contiguous()};
}

std::pair<at::Tensor, at::Tensor> svd_index(const at::Tensor& query_weight, const at::Tensor& key_weight,
                                            int64_t kv_heads, int64_t head_dim, int64_t head_sets, int64_t group_dim,
                                            at::Generator& generator) {
  const at::NoGradGuard no_grad;
  const int64_t d = query_weight.size(1);
  // Query heads that share a KV head are averaged: [Hkv, D, d].
  const at::Tensor queries = query_weight.view({kv_heads, -1, head_dim, d}).mean(1);
  const at::Tensor keys = key_weight.view({kv_heads, head_dim, d});
  std::vector<at::Tensor> query_rows, key_rows;
  for (int64_t set = 0; set < head_sets; ++set) {
    // One head set of several heads factors the sum of their products: rows side by side.
    const int64_t heads = kv_heads / head_sets;
    const at::Tensor a = queries.narrow(0, set * heads, heads).reshape({heads * head_dim, d}).t();
    const at::Tensor b = keys.narrow(0, set * heads, heads).reshape({heads * head_dim, d}).t();
    // a b^T = Qa (Ra Rb^T) Qb^T: the singular value decomposition of a small matrix gives that of the d x d product.
    const auto [qa, ra] = at::linalg_qr(a);
    const auto [qb, rb] = at::linalg_qr(b);
    const auto [u, s, vh] = at::linalg_svd(at::matmul(ra, rb.t()), /*full_matrices=*/false);
    const int64_t rank = std::min(group_dim, s.size(0));
    const at::Tensor root = s.narrow(0, 0, rank).sqrt();
    query_rows.push_back(finish(at::matmul(qa, u.narrow(1, 0, rank)) * root, group_dim, generator));
    key_rows.push_back(finish(at::matmul(qb, vh.narrow(0, 0, rank).t()) * root, group_dim, generator));
  }
  return {at::stack(query_rows), at::stack(key_rows)};
}

}  // namespace focus
