#include "train/group_balance.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

#include "attention/routing/sinkhorn.h"
#include "base/error.h"
#include "train/random_stream.h"

namespace focus {

namespace {

/// Counts [Hg, K] and sums [Hg, K, d_g] of the features assigned to each group.
std::pair<at::Tensor, at::Tensor> gather_groups(const at::Tensor& features, const at::Tensor& assignment,
                                                int64_t groups) {
  const int64_t sets = features.size(0), dim = features.size(2);
  const at::Tensor counts = at::zeros({sets, groups}, features.options())
                                .scatter_add_(1, assignment, at::ones(assignment.sizes(), features.options()));
  const at::Tensor sums = at::zeros({sets, groups, dim}, features.options())
                              .scatter_add_(1, assignment.unsqueeze(-1).expand(features.sizes()), features);
  return {counts.unsqueeze(-1), sums};
}

at::Tensor entropy(const at::Tensor& q) {
  return -(q * q.clamp_min(1e-12).log()).sum(-1);
}

void check_features(const at::Tensor& features, const at::Tensor& centroids) {
  require(features.dim() == 3 && centroids.dim() == 3 && features.size(0) == centroids.size(0) &&
              features.size(1) > 0 && features.size(2) == centroids.size(2),
          "groups: features [{}] do not fit centroids [{}]", fmt::join(features.sizes(), ", "),
          fmt::join(centroids.sizes(), ", "));
}

}  // namespace

std::vector<std::string> GroupBalance::trained() const {
  std::vector<std::string> names;
  if (!freeze_projection) names.emplace_back("projection");
  if (mitigation != GroupMitigation::kEmaCentroids) names.emplace_back("centroids");
  return names;
}

const std::vector<std::pair<std::string, GroupNormaliser>>& group_normalisers() {
  static const std::vector<std::pair<std::string, GroupNormaliser>> names = {
      {"softmax", GroupNormaliser::kSoftmax},
      {"sinkhorn", GroupNormaliser::kSinkhorn},
      {"potentials", GroupNormaliser::kPotentials}};
  return names;
}

const std::vector<std::pair<std::string, GroupMitigation>>& group_mitigations() {
  static const std::vector<std::pair<std::string, GroupMitigation>> names = {
      {"none", GroupMitigation::kNone},
      {"entropy-balance", GroupMitigation::kEntropyBalance},
      {"stop-gradient", GroupMitigation::kStopGradient},
      {"ema-centroids", GroupMitigation::kEmaCentroids},
      {"recluster", GroupMitigation::kRecluster}};
  return names;
}

at::Tensor group_memberships(const at::Tensor& scores, const at::Tensor& potentials, GroupNormaliser normaliser,
                             int64_t sinkhorn_iters) {
  switch (normaliser) {
    case GroupNormaliser::kSinkhorn:
      return sinkhorn_memberships(scores, sinkhorn_iters);
    case GroupNormaliser::kPotentials:
      return at::softmax(scores + potentials.unsqueeze(-2), -1);
    case GroupNormaliser::kSoftmax:
      break;
  }
  return at::softmax(scores, -1);
}

at::Tensor entropy_balance_loss(const at::Tensor& memberships, double balance_weight) {
  const double even = std::log(static_cast<double>(memberships.size(-1)));
  const at::Tensor undecided = entropy(memberships).mean();
  const at::Tensor uneven = even - entropy(memberships.mean(-2)).mean();
  return undecided + balance_weight * uneven;
}

at::Tensor ema_centroids(const at::Tensor& centroids, const at::Tensor& features, const at::Tensor& assignment,
                         double decay) {
  const at::NoGradGuard no_grad;
  check_features(features, centroids);
  const auto [counts, sums] = gather_groups(features, assignment, centroids.size(1));
  const at::Tensor moved = decay * centroids + (1 - decay) * sums / counts.clamp_min(1);
  return at::where(counts.gt(0), moved, centroids);
}

at::Tensor recluster(const at::Tensor& features, const at::Tensor& centroids, int64_t iterations, uint64_t seed) {
  const at::NoGradGuard no_grad;
  check_features(features, centroids);
  const int64_t groups = centroids.size(1), tokens = features.size(1);
  const auto norm = [](const at::Tensor& t) { return t.norm(2, at::IntArrayRef{-1}, /*keepdim=*/true); };
  const at::Tensor mean = features.mean(1, /*keepdim=*/true), towards = mean / norm(mean).clamp_min(1e-6);
  at::Tensor x = features - mean;                                     // [Hg, T, d_g]
  x = x - (x * towards).sum(-1, true) * towards;                      // Orthogonal to the mean.
  const at::Tensor size = norm(centroids).mean(1, /*keepdim=*/true);  // [Hg, 1, 1]
  const auto scaled = [&](const at::Tensor& c) { return c * (size / norm(c).clamp_min(1e-6)); };
  RandomStream random({static_cast<int64_t>(seed)});
  at::Tensor centers = at::empty_like(centroids);
  for (int64_t h = 0; h < x.size(0); ++h) {
    for (int64_t k = 0; k < groups; ++k) centers[h][k].copy_(x[h][random.between(0, tokens - 1)]);
  }
  centers = scaled(centers);
  for (int64_t round = 0; round < iterations; ++round) {
    const at::Tensor nearest = at::matmul(x, centers.transpose(1, 2)).argmax(-1);
    const auto [counts, sums] = gather_groups(x, nearest, groups);
    centers = at::where(counts.gt(0), scaled(sums), centers);
  }
  return centers;
}

}  // namespace focus
