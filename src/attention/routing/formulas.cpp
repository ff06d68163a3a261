#include "attention/routing/formulas.h"

#include <ATen/ATen.h>

namespace focus {

namespace {

// h [..., T, d] times [Hg, d_g, d] -> [..., Hg, T, d_g]
at::Tensor project(const at::Tensor& h, const at::Tensor& weight) {
  return at::matmul(h.unsqueeze(-3), weight.transpose(-1, -2));
}

at::Tensor normalize(const at::Tensor& x) {
  return x / at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, true).clamp_min(kNormFloor);
}

}  // namespace

at::Tensor query_features(const at::Tensor& h, const at::Tensor& query_projection) {
  const at::Tensor q = normalize(project(h, query_projection));
  return at::cat({q, at::ones_like(q.slice(-1, 0, 1))}, -1);
}

at::Tensor key_features(const at::Tensor& h, const at::Tensor& key_projection, const at::Tensor& key_bias, double tau) {
  const at::Tensor k = normalize(project(h, key_projection));
  return at::cat({k, tau * project(h, key_bias.unsqueeze(1))}, -1);
}

at::Tensor index_scores(const at::Tensor& query_feature, const at::Tensor& key_feature, double tau) {
  return at::matmul(query_feature, key_feature.transpose(-1, -2)) / tau;
}

at::Tensor key_list_scores(const at::Tensor& key_feature, const at::Tensor& codebook, const at::Tensor& potentials,
                           double tau) {
  return at::matmul(key_feature, codebook.transpose(-1, -2)) / tau + potentials.unsqueeze(-2);
}

at::Tensor probe_scores(const at::Tensor& query_feature, const at::Tensor& codebook, double tau) {
  return at::matmul(query_feature, codebook.transpose(-1, -2)) / tau;
}

at::Tensor symmetric_scores(const at::Tensor& h, const at::Tensor& projection, const at::Tensor& centroids,
                            double tau) {
  return at::matmul(project(h, projection), centroids.transpose(-1, -2)) / tau;
}

}  // namespace focus
