#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace focus {

/// How scores S [T, K] of a window's tokens become memberships of K groups.
enum class GroupNormaliser {
  kSoftmax,     ///< softmax over groups, token by token: nothing keeps groups even.
  kSinkhorn,    ///< Sinkhorn over the window's tokens (the paper): even in sum, not causal.
  kPotentials,  ///< softmax(S + b), b the running mean of earlier windows' Sinkhorn potentials: causal.
};

/// What else may keep groups alive while they are trained.
enum class GroupMitigation {
  kNone,
  kEntropyBalance,  ///< entropy_balance_loss is added to the loss.
  kStopGradient,    ///< No gradient flows from groups into the hidden states that they are chosen by.
  kEmaCentroids,    ///< Centroids follow their tokens (ema_centroids) instead of the gradient.
  kRecluster,       ///< Centroids are made anew from the present tokens from time to time (recluster).
};

/// How groups are kept even in training.
struct GroupBalance {
  GroupNormaliser normaliser = GroupNormaliser::kSinkhorn;
  GroupMitigation mitigation = GroupMitigation::kNone;
  double auxiliary_weight = 0.1;   ///< Of entropy_balance_loss, a mean over layers, beside the language-model loss.
  double balance_weight = 1;       ///< Of the balance term in it.
  double ema_decay = 0.9;          ///< Of the running potentials and of EMA centroids, by window.
  int64_t recluster_every = 100;   ///< Steps.
  bool freeze_projection = false;  ///< The projection stays as it was made; only centroids move.

  /// The tensors of a router that the gradient moves.
  std::vector<std::string> trained() const;
};

/// Names of the command line.
const std::vector<std::pair<std::string, GroupNormaliser>>& group_normalisers();
const std::vector<std::pair<std::string, GroupMitigation>>& group_mitigations();

/// Memberships [..., Hg, T, K] from scores of the same shape and, for kPotentials, potentials [Hg, K]. Rows sum to 1.
at::Tensor group_memberships(const at::Tensor& scores, const at::Tensor& potentials, GroupNormaliser normaliser,
                             int64_t sinkhorn_iters);

/// For memberships q [..., T, K], with H the entropy in nats:
///     mean_t H(q_t) + balance_weight * (log K - H(mean_t q_t)),
/// averaged over the leading dimensions. The first term wants every token decided, the second, the divergence of the
/// mean membership from even shares, wants all groups used; with weight 1 the sum is log K less the mutual information
/// of token and group (J. Bridle, A. Heading, D. MacKay, "Unsupervised classifiers, mutual information and phantom
/// targets", 1991). Differentiable.
at::Tensor entropy_balance_loss(const at::Tensor& memberships, double balance_weight);

/// Centroids c [Hg, K, d_g] after a window: c_k <- decay c_k + (1 - decay) mean of the features [Hg, T, d_g] of the
/// tokens that are assigned to k, int64 [Hg, T]; a group without a token stays (A. van den Oord et al., "Neural
/// discrete representation learning", 2017, appendix A.1, for one window).
at::Tensor ema_centroids(const at::Tensor& centroids, const at::Tensor& features, const at::Tensor& assignment,
                         double decay);

/// New centroids [Hg, K, d_g] by spherical k-means (I. Dhillon, D. Modha, "Concept decompositions for large sparse text
/// data using clustering", 2001; `iterations` rounds from random tokens drawn by `seed`) on features [Hg, T, d_g] less
/// their mean and what they have in its direction. Tokens go to the centroid of the largest dot product, as routers
/// score, so all centroids are of the same norm, the former ones' mean, by which the temperature of memberships stays;
/// and they are orthogonal to the mean, whose score would else decide for the same group at every token.
at::Tensor recluster(const at::Tensor& features, const at::Tensor& centroids, int64_t iterations, uint64_t seed);

}  // namespace focus
