#include "attention/routing/sinkhorn.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "attention/routing/rows.h"
#include "base/error.h"

namespace focus {

at::Tensor sinkhorn_potentials(const at::Tensor& scores, int64_t iterations) {
  at::NoGradGuard no_grad;
  require(scores.dim() == 3 && scores.size(1) > 0,
          "sinkhorn: scores must be [sets, tokens, groups] with at least one token");
  const at::Tensor s = scores.to(at::kFloat);
  at::Tensor row = at::zeros({s.size(0), s.size(1), 1}, s.options());
  at::Tensor column;
  for (int64_t i = 0; i < iterations; ++i) {
    column = -at::logsumexp(s + row, 1, /*keepdim=*/true);
    row = -at::logsumexp(s + column, 2, /*keepdim=*/true);
  }
  return (column - column.mean(2, /*keepdim=*/true)).squeeze(1);
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

// Indices of k-means++ seeds among x [n, d]: each next point drawn with probability proportional to its squared
// distance from the nearest seed so far.
std::vector<int64_t> draw_seeds(const float* x, int64_t n, int64_t d, int64_t k, std::mt19937_64& random) {
  const auto uniform = [&random] { return static_cast<double>(random() >> 11) * 0x1.0p-53; };
  std::vector<int64_t> seeds;
  std::vector<double> distance(static_cast<size_t>(n), std::numeric_limits<double>::infinity());
  seeds.push_back(std::min(n - 1, static_cast<int64_t>(uniform() * static_cast<double>(n))));
  while (static_cast<int64_t>(seeds.size()) < k) {
    const float* last = x + seeds.back() * d;
    double total = 0;
    for (int64_t i = 0; i < n; ++i) {
      double square = 0;
      for (int64_t j = 0; j < d; ++j) {
        const double difference = static_cast<double>(x[i * d + j]) - static_cast<double>(last[j]);
        square += difference * difference;
      }
      double& nearest = distance[static_cast<size_t>(i)];
      nearest = std::min(nearest, square);
      total += nearest;
    }
    double left = uniform() * total;
    int64_t pick = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double share = distance[static_cast<size_t>(i)];
      if (share > 0) pick = i;
      left -= share;
      if (left < 0) break;
    }
    seeds.push_back(pick);
  }
  return seeds;
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
    const std::vector<int64_t> seeds = draw_seeds(x.const_data_ptr<float>() + h * n * d, n, d, k, random);
    starts.push_back(x[h].index_select(0, at::tensor(seeds, at::kLong)));
  }
  at::Tensor centers = at::stack(starts);
  at::Tensor potentials = at::zeros({sets, 1, k}, x.options());
  const at::Tensor square = x.square().sum(-1);  // [H, N]
  for (int64_t round = 0; round < iterations; ++round) {
    const at::Tensor base =
        (at::matmul(x, centers.transpose(1, 2)) - 0.5 * centers.square().sum(-1).unsqueeze(1)) / tau;
    potentials = soften(base, potentials);
    const at::Tensor chosen = (base + potentials).argmax(-1);  // [H, N]
    const at::Tensor counts = at::zeros({sets, k}, x.options()).scatter_add_(1, chosen, at::ones_like(square));
    const at::Tensor sums = at::zeros_like(centers).scatter_add_(1, chosen.unsqueeze(-1).expand({sets, n, d}), x);
    centers = sums / counts.clamp_min(1).unsqueeze(-1);
    const at::Tensor empty = counts.eq(0);
    if (!empty.any().item<bool>()) continue;
    const at::Tensor own = square - 2 * tau * base.gather(2, chosen.unsqueeze(-1)).squeeze(-1);  // squared distance
    for (int64_t h = 0; h < sets; ++h) {
      const at::Tensor slots = empty[h].nonzero().squeeze(1);
      const int64_t moved = std::min(slots.size(0), n);
      const at::Tensor worst = std::get<1>(own[h].topk(moved));
      centers[h].index_copy_(0, slots.slice(0, 0, moved), x[h].index_select(0, worst));
      potentials[h][0].index_fill_(0, slots, 0);
    }
  }
  at::Tensor b = potentials.squeeze(1) - centers.square().sum(-1) / (2 * tau);
  return {centers, b - b.mean(1, /*keepdim=*/true)};
}

}  // namespace focus
