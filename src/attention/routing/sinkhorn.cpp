#include "attention/routing/sinkhorn.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "attention/routing/rows.h"
#include "base/error.h"

namespace focus {

namespace {

// Column potentials [..., 1, K] after `iterations` rounds on scores [..., T, K].
at::Tensor iterate(const at::Tensor& s, int64_t iterations) {
  require(iterations >= 1, "sinkhorn: {} iterations, at least one is needed", iterations);
  at::Tensor column = -at::logsumexp(s, -2, /*keepdim=*/true);
  for (int64_t i = 1; i < iterations; ++i) {
    const at::Tensor row = -at::logsumexp(s + column, -1, /*keepdim=*/true);
    column = -at::logsumexp(s + row, -2, /*keepdim=*/true);
  }
  return column;
}

}  // namespace

at::Tensor sinkhorn_potentials(const at::Tensor& scores, int64_t iterations) {
  at::NoGradGuard no_grad;
  require(scores.dim() == 3 && scores.size(1) > 0,
          "sinkhorn: scores must be [sets, tokens, groups] with at least one token");
  const at::Tensor column = iterate(scores.to(at::kFloat), iterations);
  return (column - column.mean(2, /*keepdim=*/true)).squeeze(1);
}

at::Tensor sinkhorn_memberships(const at::Tensor& scores, int64_t iterations) {
  require(scores.dim() >= 2 && scores.size(-2) > 0, "sinkhorn: scores must be [..., tokens, groups] with tokens");
  return at::softmax(scores + iterate(scores, iterations), -1);
}

namespace {

// Hard assignment of every row of scores [n, e] plus potentials; counts [e].
void count_assignments(const float* scores, int64_t n, int64_t e, const float* potentials,
                       std::vector<int64_t>& counts) {
  std::fill(counts.begin(), counts.end(), 0);
  std::vector<float> row(static_cast<size_t>(e));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < e; ++j) row[static_cast<size_t>(j)] = scores[i * e + j] + potentials[j];
    ++counts[static_cast<size_t>(argmax_row(row.data(), 0, e))];
  }
}

struct Balanced {
  std::vector<float> potentials;
  int64_t largest = 0;
  int64_t iterations = 0;
};

Balanced balance(const float* scores, int64_t n, int64_t e, std::vector<float> potentials, int64_t max_iterations,
                 double tolerance) {
  constexpr float kFirstStep = 0.5F;
  constexpr float kGrowth = 1.2F;
  constexpr float kShrink = 0.5F;
  constexpr float kLargestStep = 50.0F;
  Balanced best;
  std::vector<int64_t> counts(static_cast<size_t>(e));
  std::vector<float> steps(static_cast<size_t>(e), kFirstStep);
  std::vector<float> before(static_cast<size_t>(e), 0.0F);
  for (int64_t t = 0;; ++t) {
    const float mean = std::accumulate(potentials.begin(), potentials.end(), 0.0F) / static_cast<float>(e);
    for (float& b : potentials) b -= mean;
    count_assignments(scores, n, e, potentials.data(), counts);
    const int64_t largest = *std::max_element(counts.begin(), counts.end());
    if (t == 0 || largest < best.largest) {
      best.potentials = potentials;
      best.largest = largest;
    }
    best.iterations = t;
    const double goal = (1 + tolerance) * static_cast<double>(n) / static_cast<double>(e);
    if (t == max_iterations || static_cast<double>(best.largest) <= std::max(goal, 1.0)) return best;
    for (size_t j = 0; j < static_cast<size_t>(e); ++j) {
      const float share = (static_cast<float>(counts[j]) + 0.5F) * static_cast<float>(e) / static_cast<float>(n);
      const float excess = std::clamp(std::log(share), -1.0F, 1.0F);
      if (excess * before[j] > 0) steps[j] = std::min(steps[j] * kGrowth, kLargestStep);
      if (excess * before[j] < 0) steps[j] *= kShrink;
      before[j] = excess;
      potentials[j] -= steps[j] * excess;
    }
  }
}

// k random points of n as first centers: different ones while there are enough. Drawn by density, not spread out as
// k-means++ does: clusters of equal size are wanted, and most points must not be left to few centers.
std::vector<int64_t> draw_seeds(int64_t n, int64_t k, std::mt19937_64& random) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::vector<int64_t> seeds;
  for (int64_t i = 0; i < k; ++i) {
    const int64_t at = i % n;
    const auto other = at + static_cast<int64_t>(random() % static_cast<uint64_t>(n - at));
    std::swap(order[static_cast<size_t>(at)], order[static_cast<size_t>(other)]);
    seeds.push_back(order[static_cast<size_t>(at)]);
  }
  return seeds;
}

// When one cluster is far too large and another far too small, the small one moves to a random point of the large one.
void split_largest(const at::Tensor& centers, const at::Tensor& potentials, const at::Tensor& x,
                   const at::Tensor& chosen, const at::Tensor& counts, std::mt19937_64& random) {
  constexpr double kTooSmall = 0.6;
  constexpr double kTooLarge = 1.6;
  const double mean = static_cast<double>(x.size(0)) / static_cast<double>(counts.size(0));
  const auto smallest = counts.argmin().item<int64_t>();
  const auto largest = counts.argmax().item<int64_t>();
  if (counts[smallest].item<double>() > kTooSmall * mean || counts[largest].item<double>() < kTooLarge * mean) return;
  const at::Tensor members = chosen.eq(largest).nonzero().squeeze(1);
  const auto pick = static_cast<int64_t>(random() % static_cast<uint64_t>(members.size(0)));
  centers[smallest].copy_(x[members[pick].item<int64_t>()]);
  potentials[smallest].copy_(potentials[largest]);
}

// Balance potentials that even out the soft shares of softmax(base + potentials); base [H, N, K] -> [H, 1, K].
at::Tensor soften(const at::Tensor& base, at::Tensor potentials) {
  constexpr int kRounds = 4;
  constexpr double kStep = 0.7;
  constexpr double kShareFloor = 1e-6;
  const double k = static_cast<double>(base.size(2));
  for (int r = 0; r < kRounds; ++r) {
    const at::Tensor share = at::softmax(base + potentials, -1).mean(1, /*keepdim=*/true) * k;
    potentials = potentials - kStep * at::log(share + kShareFloor);
  }
  return potentials;
}

}  // namespace

Calibration calibrate_potentials(const at::Tensor& scores, const at::Tensor& start, int64_t max_iterations,
                                 double tolerance) {
  at::NoGradGuard no_grad;
  require(scores.dim() == 3 && scores.size(1) > 0,
          "calibration: scores must be [sets, tokens, entries] with at least one token");
  const int64_t sets = scores.size(0);
  const int64_t n = scores.size(1);
  const int64_t e = scores.size(2);
  require(start.dim() == 2 && start.size(0) == sets && start.size(1) == e, "calibration: potentials must be [{}, {}]",
          sets, e);
  require(at::isfinite(scores).all().item<bool>(), "calibration: scores that are not finite");
  const at::Tensor s = scores.to(at::kFloat).contiguous();
  const at::Tensor b = start.to(at::kFloat).contiguous();
  Calibration result{at::empty_like(b), at::empty({sets}, at::kDouble), 0};
  std::vector<int64_t> iterations(static_cast<size_t>(sets));
  const float* score_data = s.const_data_ptr<float>();
  const float* start_data = b.const_data_ptr<float>();
  float* out = result.potentials.data_ptr<float>();
  double* share = result.largest_share.data_ptr<double>();
  at::parallel_for(0, sets, 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      const Balanced best = balance(score_data + h * n * e, n, e, {start_data + h * e, start_data + (h + 1) * e},
                                    max_iterations, tolerance);
      std::copy(best.potentials.begin(), best.potentials.end(), out + h * e);
      share[h] = static_cast<double>(best.largest) / static_cast<double>(n);
      iterations[static_cast<size_t>(h)] = best.iterations;
    }
  });
  result.iterations = *std::max_element(iterations.begin(), iterations.end());
  return result;
}

Clusters balanced_kmeans(const at::Tensor& features, int64_t k, int64_t iterations, double tau, uint64_t seed) {
  at::NoGradGuard no_grad;
  require(features.dim() == 3 && features.size(1) > 0,
          "k-means: features must be [sets, points, dimensions] with at least one point");
  require(at::isfinite(features).all().item<bool>(), "k-means: features that are not finite");
  const at::Tensor x = features.to(at::kFloat).contiguous();
  const int64_t sets = x.size(0);
  const int64_t n = x.size(1);
  const int64_t d = x.size(2);
  std::mt19937_64 random(seed);
  std::vector<at::Tensor> starts;
  for (int64_t h = 0; h < sets; ++h) {
    const std::vector<int64_t> seeds = draw_seeds(n, k, random);
    starts.push_back(x[h].index_select(0, at::tensor(seeds, at::kLong)));
  }
  at::Tensor centers = at::stack(starts);
  at::Tensor potentials = at::zeros({sets, 1, k}, x.options());
  for (int64_t round = 0; round < iterations; ++round) {
    const at::Tensor base =
        (at::matmul(x, centers.transpose(1, 2)) - 0.5 * centers.square().sum(-1).unsqueeze(1)) / tau;
    potentials = soften(base, potentials);
    const at::Tensor chosen = (base + potentials).argmax(-1);  // [H, N]
    const at::Tensor counts =
        at::zeros({sets, k}, x.options()).scatter_add_(1, chosen, at::ones({sets, n}, x.options()));
    const at::Tensor sums = at::zeros_like(centers).scatter_add_(1, chosen.unsqueeze(-1).expand({sets, n, d}), x);
    centers = at::where(counts.gt(0).unsqueeze(-1), sums / counts.clamp_min(1).unsqueeze(-1), centers);
    if (round + round / 3 >= iterations) continue;  // the last quarter only settles
    for (int64_t h = 0; h < sets; ++h) {
      split_largest(centers[h], potentials[h][0], x[h], chosen[h], counts[h], random);
    }
  }
  at::Tensor b = potentials.squeeze(1) - centers.square().sum(-1) / (2 * tau);
  return {centers, b - b.mean(1, /*keepdim=*/true)};
}

}  // namespace focus
