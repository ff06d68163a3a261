#pragma once

#include <ATen/ATen.h>

namespace focus {

/// The formulas of routing in plain ATen, differentiable, for training; Router::route computes the same ones by hand,
/// row by row (docs/design.md, section 3). h [..., T, d] are the attention block's inputs after their norm; Hg list
/// sets; results carry Hg after the leading dimensions of h.

/// Norms below this are not divided by.
inline constexpr double kNormFloor = 1e-6;

/// [q_hat, 1]: h [..., T, d], projection W_q [Hg, d_g, d] -> [..., Hg, T, d_g + 1].
at::Tensor query_features(const at::Tensor& h, const at::Tensor& query_projection);

/// [k_hat, tau * u.h]: projection W_k [Hg, d_g, d], bias u [Hg, d] -> [..., Hg, T, d_g + 1].
at::Tensor key_features(const at::Tensor& h, const at::Tensor& key_projection, const at::Tensor& key_bias, double tau);

/// Index scores s_ij = cos(W_q h_i, W_k h_j) / tau + u.h_j out of the features: [..., Hg, R, T].
at::Tensor index_scores(const at::Tensor& query_feature, const at::Tensor& key_feature, double tau);

/// Scores by which a key chooses its list, key_feature.C_e / tau + b_e: codebook [Hg, E, d_g + 1], potentials [Hg, E]
/// ->
/// [..., Hg, T, E].
at::Tensor key_list_scores(const at::Tensor& key_feature, const at::Tensor& codebook, const at::Tensor& potentials,
                           double tau);

/// Scores by which a query chooses its lists, [q_hat, 1].C_e / tau: [..., Hg, R, E]; the mean index score of the list's
/// keys when C_e is the mean of their features.
at::Tensor probe_scores(const at::Tensor& query_feature, const at::Tensor& codebook, double tau);

/// The paper's scores (h W_g) C^T / tau: projection [Hg, d_g, d], centroids [Hg, K, d_g] -> [..., Hg, T, K].
at::Tensor symmetric_scores(const at::Tensor& h, const at::Tensor& projection, const at::Tensor& centroids, double tau);

}  // namespace focus
