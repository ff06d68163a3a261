#include "bench/gate.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace focus {

namespace {

constexpr int64_t kTileRows = 24;

// Starts of the tiles of rows that are compared; tiles do not overlap.
std::vector<int64_t> tile_starts(int64_t length) {
  const int64_t last = std::max<int64_t>(0, length - kTileRows);
  std::vector<int64_t> starts = {0};
  for (const int64_t start : {length / 3, 2 * length / 3, last}) {
    if (start >= starts.back() + kTileRows && start <= last) starts.push_back(start);
  }
  return starts;
}

struct Outcome {
  std::vector<at::Tensor> out;  // by tile, [B, Hq, rows, D]
  at::Tensor dq, dk, dv;        // of the loss over all tiles; undefined without gradients
};

// The reference over the tiles; gradients add up.
Outcome reference_outcome(const BenchProblem& problem, const at::Tensor& grad_out, at::ScalarType dtype,
                          bool backward) {
  Outcome outcome;
  const auto leaf = [&](const at::Tensor& x) { return x.detach().to(dtype).requires_grad_(backward); };
  BenchProblem whole{leaf(problem.q), leaf(problem.k), leaf(problem.v), problem.params};
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (const int64_t first : tile_starts(problem.length())) {
    const int64_t last = std::min(first + kTileRows, problem.length());
    const BenchProblem tile = whole.rows(first, last);
    const at::Tensor out = std::get<0>(reference_attention(tile.q, tile.k, tile.v, tile.params));
    outcome.out.push_back(out.detach());
    if (backward) loss = loss + (out.to(at::kDouble) * grad_out.slice(2, first, last).to(at::kDouble)).sum();
  }
  if (backward) {
    const auto grads = torch::autograd::grad({loss}, {whole.q, whole.k, whole.v});
    outcome.dq = grads[0];
    outcome.dk = grads[1];
    outcome.dv = grads[2];
  }
  return outcome;
}

double largest(const at::Tensor& x) {
  return x.numel() == 0 ? 0.0 : x.abs().max().to(at::kDouble).item<double>();
}

// Largest |actual - exact|; fails when it is above what the precision explains. NaN never passes.
double compare(const std::string& name, const char* part, const at::Tensor& actual, const at::Tensor& same,
               const at::Tensor& exact, double slack) {
  const double error = largest(actual.detach().to(at::kDouble) - exact);
  const double allowed =
      2.0 * largest(same.to(at::kDouble) - exact) + 4.0 * epsilon(actual.scalar_type()) * largest(exact) + slack;
  require(error <= allowed,
          "bench: {} computes a wrong {}: off by {:.3g}, rounding explains {:.3g}; no speed is reported", name, part,
          error, allowed);
  return error;
}

}  // namespace

double epsilon(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? std::ldexp(1.0, -8)
         : dtype == at::kHalf   ? std::ldexp(1.0, -11)
         : dtype == at::kDouble ? std::ldexp(1.0, -53)
                                : std::ldexp(1.0, -24);
}

BenchProblem BenchProblem::rows(int64_t first, int64_t last) const {
  BenchProblem part{q.slice(2, first, last), k.slice(2, 0, last), v.slice(2, 0, last), params};
  if (params.key_group) {
    part.params.key_group = params.key_group->slice(2, 0, last);
    part.params.probes = params.probes->slice(2, first, last);
  }
  return part;
}

double check_attention_run(const std::string& name, const BenchProblem& problem, const AttentionRun& run,
                           bool backward) {
  at::Tensor grad_out = at::zeros_like(problem.q);
  for (const int64_t first : tile_starts(problem.length())) {
    grad_out.slice(2, first, std::min(first + kTileRows, problem.length())).normal_();
  }
  const auto leaf = [&](const at::Tensor& x) { return x.detach().requires_grad_(backward); };
  const BenchProblem leaves{leaf(problem.q), leaf(problem.k), leaf(problem.v), problem.params};
  const at::Tensor out = run(leaves);
  Outcome actual;
  if (backward) {
    const auto grads = torch::autograd::grad({out}, {leaves.q, leaves.k, leaves.v}, {grad_out});
    actual.dq = grads[0];
    actual.dk = grads[1];
    actual.dv = grads[2];
  }
  const Outcome same = reference_outcome(problem, grad_out, problem.q.scalar_type(), backward);
  const Outcome exact = reference_outcome(problem, grad_out, at::kDouble, backward);
  double error = 0.0;
  size_t tile = 0;
  for (const int64_t first : tile_starts(problem.length())) {
    const at::Tensor rows = out.detach().slice(2, first, std::min(first + kTileRows, problem.length()));
    error = std::max(error, compare(name, "output", rows, same.out[tile], exact.out[tile], 0.0));
    ++tile;
  }
  if (!backward) return error;
  // Weights come from rounded scores; dO.v - delta is a difference of numbers up to |dO| |v| (Euclidean norms).
  const auto longest = [](const at::Tensor& rows) { return rows.to(at::kDouble).norm(2, -1).max().item<double>(); };
  const double score = problem.params.scale * longest(problem.q) * longest(problem.k);
  const double rounding = 4.0 * epsilon(at::kFloat) * (1.0 + score);
  const double change = rounding * longest(grad_out) * longest(problem.v) * std::abs(problem.params.scale);
  compare(name, "gradient of q", actual.dq, same.dq, exact.dq, change * largest(problem.k));
  compare(name, "gradient of k", actual.dk, same.dk, exact.dk, change * largest(problem.q));
  compare(name, "gradient of v", actual.dv, same.dv, exact.dv, rounding * largest(grad_out));
  return error;
}

}  // namespace focus
