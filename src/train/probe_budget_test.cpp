#include "train/probe_budget.h"

#include <gtest/gtest.h>

#include "attention/routing/router.h"
#include "base/error.h"

namespace focus {
namespace {

ProbeCurves curves(const std::vector<std::vector<double>>& error, const std::vector<std::vector<double>>& kept) {
  const auto rows = [](const std::vector<std::vector<double>>& values) {
    std::vector<at::Tensor> tensors;
    for (const auto& row : values) tensors.push_back(at::tensor(row, at::kDouble));
    return at::stack(tensors);
  };
  return {.error = rows(error), .kept = rows(kept)};
}

TEST(ProbeBudget, GridRunsFromOneToAllAndHoldsP) {
  const std::vector<int64_t> grid = probe_grid(10, 64);
  EXPECT_EQ(grid.front(), 1);
  EXPECT_EQ(grid.back(), 64);
  EXPECT_EQ(std::count(grid.begin(), grid.end(), 10), 1);
  EXPECT_TRUE(std::is_sorted(grid.begin(), grid.end()));
  EXPECT_EQ(probe_grid(1, 1), std::vector<int64_t>{1});
}

TEST(ProbeBudget, ProbesGoWhereTheyLowerTheErrorMost) {
  // Set 0 of the first layer gains nothing after one probe, set 1 only with all four; the second layer's set steadily.
  const std::vector<double> pairs = {0.1, 0.2, 0.4};
  const auto probes = allocate_probes(
      {curves({{.1, .1, .1}, {.9, .9, .0}}, {pairs, pairs}), curves({{.5, .3, .2}}, {pairs})}, {1, 2, 4}, 2);
  // The budget is 3 x 0.2: 0.1 + 0.4 + 0.1.
  EXPECT_EQ(probes, (std::vector<std::vector<int64_t>>{{1, 4}, {1}}));
}

TEST(ProbeBudget, NoMorePairsThanWithPEverywhere) {
  at::manual_seed(1);
  const std::vector<int64_t> grid = probe_grid(8, 64);
  std::vector<ProbeCurves> layers;
  for (int64_t layer = 0; layer < 5; ++layer) {
    const auto n = std::ssize(grid);
    layers.push_back({.error = std::get<0>(at::rand({3, n}, at::kDouble).sort(-1, /*descending=*/true)),
                      .kept = std::get<0>(at::rand({3, n}, at::kDouble).sort(-1))});
  }
  const auto probes = allocate_probes(layers, grid, 8);
  const auto at_probes = [&](const at::Tensor& values, int64_t set, int64_t count) {
    return values[set][std::find(grid.begin(), grid.end(), count) - grid.begin()].item<double>();
  };
  double budget = 0, used = 0, uniform_error = 0, error = 0;
  for (int64_t layer = 0; layer < 5; ++layer) {
    for (int64_t set = 0; set < 3; ++set) {
      budget += at_probes(layers[layer].kept, set, 8);
      used += at_probes(layers[layer].kept, set, probes[layer][set]);
      uniform_error += at_probes(layers[layer].error, set, 8);
      error += at_probes(layers[layer].error, set, probes[layer][set]);
    }
  }
  EXPECT_LE(used, budget);
  EXPECT_LT(error, uniform_error);
}

TEST(ProbeBudget, WithoutFarPairsEverySetGetsP) {
  const auto probes = allocate_probes({curves({{0, 0, 0}}, {{0, 0, 0}})}, {1, 2, 4}, 2);
  EXPECT_EQ(probes, (std::vector<std::vector<int64_t>>{{2}}));
}

TEST(ProbeBudget, CurvesThatDoNotFitAreRefused) {
  EXPECT_THROW(allocate_probes({curves({{1, 0}}, {{0, 1}})}, {1, 2, 4}, 2), Error);
  EXPECT_THROW(allocate_probes({}, {1, 2, 4}, 3), Error);
}

TEST(ProbeBudget, ExponentsGiveBackTheProbes) {
  for (int64_t groups : {1, 2, 8, 64, 255}) {
    for (int64_t configured = 1; configured <= groups; configured += 1 + groups / 9) {
      for (int64_t probes = 1; probes <= groups; probes += 1 + groups / 13) {
        const double exponent = probe_exponent(probes, configured, groups);
        EXPECT_GT(static_cast<float>(exponent), 0);
        const int64_t wanted = configured < groups ? probes : groups;
        EXPECT_EQ(probes_of_set(static_cast<float>(exponent), configured, groups), wanted);
        EXPECT_EQ(probes_of_set(static_cast<float>(exponent), groups, groups), groups);
      }
    }
  }
}

}  // namespace
}  // namespace focus
