#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace focus {

/// Column potentials of Sinkhorn's iteration in the log domain, float32: scores S [H, T, K] (already divided by tau) ->
/// b [H, K] with mean 0. `iterations` times: divide by the column sums over tokens, then by the row sums over groups
/// (the paper, "Method", N = 10). After the last row step the assignment is softmax_k(S + b). Any finite scores, no
/// overflow.
at::Tensor sinkhorn_potentials(const at::Tensor& scores, int64_t iterations);

/// Memberships of the same iteration, softmax_k(S + b): scores [..., T, K] -> the paper's Q [..., T, K], whose rows sum
/// to 1. Differentiable through all iterations, in the dtype of the scores. At least one iteration.
at::Tensor sinkhorn_memberships(const at::Tensor& scores, int64_t iterations);

/// Result of calibrate_potentials.
struct Calibration {
  at::Tensor potentials;     ///< float32 [H, E], mean 0.
  at::Tensor largest_share;  ///< float64 [H]: share of the fullest entry with these potentials.
  int64_t iterations = 0;
};

/// Potentials that balance hard assignments: adjusts b so that the shares of argmax_e(scores[h, i, e] + b[h, e]) are
/// even. scores float32 [H, N, E] (divided by tau, without potentials), start [H, E]. Updates b_e -= step_e *
/// log(share_e * E), where step_e grows while the sign of the excess holds and halves when it turns; the b with the
/// smallest largest share is kept; stops when that is within (1 + tolerance) / E for every h, or after
/// `max_iterations`. What cannot be balanced (many equal rows) is reported, not an error.
Calibration calibrate_potentials(const at::Tensor& scores, const at::Tensor& start, int64_t max_iterations = 120,
                                 double tolerance = 0.05);

/// Result of balanced_kmeans.
struct Clusters {
  at::Tensor centers;     ///< float32 [H, K, D]
  at::Tensor potentials;  ///< float32 [H, K], mean 0: entry = argmax_k(x.C_k / tau + b_k).
};

/// Balanced k-means on features [H, N, D] (Euclidean; x.C_k / tau - |C_k|^2 / (2 tau) plus balance potentials that even
/// out the soft shares): starts from random points drawn with `seed`, then `iterations` rounds of assignment and means.
/// An empty or far too small cluster moves into the largest one. With N < K, or fewer different points, some centers
/// are equal. Deterministic. Throws Error for features that are not finite or N = 0.
Clusters balanced_kmeans(const at::Tensor& features, int64_t k, int64_t iterations, double tau, uint64_t seed);

}  // namespace focus
