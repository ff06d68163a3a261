#include "train/probe_budget.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace focus {

namespace {

/// One head set on its way up the grid.
struct Climber {
  const double* error;
  const double* kept;
  size_t at = 0;
};

struct Step {
  double gain = 0;  // fall of error per pair
  Climber* climber = nullptr;
  size_t to = 0;
};

// Smaller than any far pair's share: steps that cost nothing come first, by what they gain.
constexpr double kFree = 1e-9;

}  // namespace

std::vector<int64_t> probe_grid(int64_t groups_per_token, int64_t groups) {
  std::vector<int64_t> grid = {groups_per_token, groups};
  for (double probes = 1; probes < static_cast<double>(groups); probes *= std::cbrt(2.0)) {
    grid.push_back(std::llround(probes));
  }
  std::sort(grid.begin(), grid.end());
  grid.erase(std::unique(grid.begin(), grid.end()), grid.end());
  return grid;
}

std::vector<std::vector<int64_t>> allocate_probes(const std::vector<ProbeCurves>& layers,
                                                  const std::vector<int64_t>& grid, int64_t groups_per_token) {
  const auto uniform = static_cast<size_t>(std::find(grid.begin(), grid.end(), groups_per_token) - grid.begin());
  require(uniform < grid.size(), "probe budget: {} probes are not on the grid", groups_per_token);
  std::vector<at::Tensor> held;  // Keeps the rows that climbers point to alive.
  std::vector<Climber> climbers;
  double budget = 0, used = 0;
  for (const ProbeCurves& curves : layers) {
    require(curves.error.size(1) == std::ssize(grid) && curves.kept.sizes() == curves.error.sizes(),
            "probe budget: curves of {} points for a grid of {}", curves.error.size(1), grid.size());
    held.push_back(curves.error.to(at::kDouble).contiguous());
    const double* error = held.back().const_data_ptr<double>();
    held.push_back(curves.kept.to(at::kDouble).contiguous());
    const double* kept = held.back().const_data_ptr<double>();
    for (int64_t set = 0; set < curves.error.size(0); ++set) {
      const int64_t row = set * std::ssize(grid);
      climbers.push_back({error + row, kept + row});
      budget += climbers.back().kept[uniform];
      used += climbers.back().kept[0];
    }
  }
  for (;;) {
    Step best;
    for (Climber& climber : climbers) {
      // Steps may skip points of the grid: a curve need not be convex.
      for (size_t to = climber.at + 1; to < grid.size(); ++to) {
        const double pairs = climber.kept[to] - climber.kept[climber.at];
        if (used + pairs > budget) break;
        const double gain = (climber.error[climber.at] - climber.error[to]) / std::max(pairs, kFree);
        if (gain > best.gain) best = {gain, &climber, to};
      }
    }
    if (best.climber == nullptr) break;
    used += best.climber->kept[best.to] - best.climber->kept[best.climber->at];
    best.climber->at = best.to;
  }
  std::vector<std::vector<int64_t>> probes;
  auto climber = climbers.begin();
  for (const ProbeCurves& curves : layers) {
    std::vector<int64_t>& sets = probes.emplace_back();
    for (int64_t set = 0; set < curves.error.size(0); ++set, ++climber) {
      sets.push_back(budget > 0 ? grid[climber->at] : groups_per_token);
    }
  }
  return probes;
}

double probe_exponent(int64_t probes, int64_t groups_per_token, int64_t groups) {
  if (groups_per_token >= groups) return 1.0;
  const auto share = [&](double n) { return std::log(n / static_cast<double>(groups)); };
  // All lists probed would be the exponent 0, which no smaller P could undo: half a list less serves.
  const double wanted = std::min(static_cast<double>(probes), static_cast<double>(groups) - 0.49);
  return share(wanted) / share(static_cast<double>(groups_per_token));
}

}  // namespace focus
