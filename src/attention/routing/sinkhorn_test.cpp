#include "attention/routing/sinkhorn.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"

namespace focus {
namespace {

at::Tensor random(at::IntArrayRef shape, uint64_t seed) {
  at::manual_seed(seed);
  return at::randn(shape, at::kFloat);
}

TEST(Sinkhorn, MembershipsAreThoseOfThePapersIteration) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const at::Tensor scores = at::randn({2, 50, 4}, generator, at::TensorOptions(at::kDouble)).set_requires_grad(true);
  at::Tensor q = scores.exp();
  for (int i = 0; i < 10; ++i) {
    q = q / q.sum(-2, true);
    q = q / q.sum(-1, true);
  }
  const at::Tensor ours = sinkhorn_memberships(scores, 10);
  EXPECT_LT((ours - q).abs().max().item<double>(), 1e-12);
  const at::Tensor softmax = (scores + sinkhorn_potentials(scores.detach(), 10).unsqueeze(1)).softmax(-1);
  EXPECT_LT((ours - softmax).abs().max().item<double>(), 1e-5);
  const at::Tensor weights = at::randn(q.sizes(), generator, at::TensorOptions(at::kDouble));
  const at::Tensor expected = torch::autograd::grad({(q * weights).sum()}, {scores})[0];
  const at::Tensor gradient = torch::autograd::grad({(ours * weights).sum()}, {scores})[0];
  EXPECT_LT((gradient - expected).abs().max().item<double>(), 1e-12);
  EXPECT_THROW(sinkhorn_memberships(scores, 0), Error);
}

TEST(Sinkhorn, ColumnsComeOutEvenAndRowsSumToOne) {
  const at::Tensor scores = random({2, 512, 8}, 1) / 0.5;
  const at::Tensor b = sinkhorn_potentials(scores, 50);
  const at::Tensor share = at::softmax(scores + b.unsqueeze(1), -1).mean(1);
  EXPECT_LT((share - 1.0 / 8).abs().max().item<double>(), 1e-3);
  EXPECT_LT(b.mean(1).abs().max().item<double>(), 1e-5);
}

TEST(Sinkhorn, FollowsThePapersStepsWhereTheseDoNotOverflow) {
  const at::Tensor scores = random({1, 64, 4}, 2);
  at::Tensor q = scores.exp();
  for (int i = 0; i < 10; ++i) {
    q = q / q.sum(1, true);
    q = q / q.sum(2, true);
  }
  const at::Tensor b = sinkhorn_potentials(scores, 10);
  EXPECT_TRUE(at::allclose(at::softmax(scores + b.unsqueeze(1), -1), q, 1e-4, 1e-5));
}

TEST(Sinkhorn, LargeScoresStayFinite) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor scores = (at::where(random({3, 333, 8}, 3) > 0, 50.0, -50.0) / 0.05).to(dtype);
    const at::Tensor b = sinkhorn_potentials(scores, 10);
    ASSERT_TRUE(at::isfinite(b).all().item<bool>());
    const at::Tensor q = at::softmax(scores.to(at::kFloat) + b.unsqueeze(1), -1);
    EXPECT_LT((q.sum(-1) - 1).abs().max().item<double>(), 1e-5);
  }
}

TEST(Calibration, BalancesHardAssignments) {
  const at::Tensor scores = random({3, 4096, 64}, 4) * 3 + at::linspace(-8, 8, 64);
  const Calibration result = calibrate_potentials(scores, at::zeros({3, 64}));
  const at::Tensor chosen = (scores + result.potentials.unsqueeze(1)).argmax(-1);
  for (int64_t h = 0; h < 3; ++h) {
    const double largest = at::bincount(chosen[h], {}, 64).max().item<double>() / 4096;
    EXPECT_NEAR(largest, result.largest_share[h].item<double>(), 1e-12);
    EXPECT_LE(largest, 1.06 / 64);
  }
  EXPECT_LT(result.iterations, 120);
}

TEST(Calibration, EqualRowsCannotBeSplitAndAreReported) {
  const Calibration result = calibrate_potentials(at::ones({1, 100, 4}), at::zeros({1, 4}), 20);
  EXPECT_EQ(result.largest_share[0].item<double>(), 1.0);
  EXPECT_TRUE(at::isfinite(result.potentials).all().item<bool>());
  EXPECT_THROW(calibrate_potentials(at::full({1, 2, 2}, std::nan("")), at::zeros({1, 2})), Error);
}

TEST(BalancedKmeans, FindsSeparatedClusters) {
  const at::Tensor means = at::eye(8).unsqueeze(0);
  const at::Tensor truth = at::arange(800).remainder(8);
  const at::Tensor x = means.index_select(1, truth) + 0.05 * random({1, 800, 8}, 6);
  const Clusters clusters = balanced_kmeans(x, 8, 12, 0.1, 7);
  const at::Tensor chosen =
      (at::matmul(x, clusters.centers.transpose(1, 2)) / 0.1 + clusters.potentials.unsqueeze(1)).argmax(-1)[0];
  for (int64_t c = 0; c < 8; ++c) {
    const at::Tensor mine = chosen.masked_select(truth.eq(c));
    EXPECT_TRUE(mine.eq(mine[0]).all().item<bool>()) << "cluster " << c;
  }
  EXPECT_EQ(at::bincount(chosen, {}, 8).max().item<int64_t>(), 100);
}

TEST(BalancedKmeans, KeepsListsNearTheMean) {
  const at::Tensor x = at::cat({random({2, 4000, 17}, 8) * 0.1 + 1, random({2, 1000, 17}, 9)}, 1);
  const Clusters clusters = balanced_kmeans(x, 64, 12, 0.1, 1);
  const at::Tensor scores = at::matmul(x, clusters.centers.transpose(1, 2)) / 0.1;
  const Calibration result = calibrate_potentials(scores, clusters.potentials);
  EXPECT_LE(result.largest_share.max().item<double>(), 1.5 / 64);
}

TEST(BalancedKmeans, IsDeterministicAndSurvivesFewPoints) {
  const at::Tensor x = random({1, 500, 17}, 10);
  const Clusters a = balanced_kmeans(x, 16, 8, 0.1, 3);
  const Clusters b = balanced_kmeans(x, 16, 8, 0.1, 3);
  EXPECT_TRUE(at::equal(a.centers, b.centers));
  EXPECT_TRUE(at::equal(a.potentials, b.potentials));
  EXPECT_FALSE(at::equal(a.centers, balanced_kmeans(x, 16, 8, 0.1, 4).centers));
  for (const at::Tensor& points : {at::ones({1, 300, 3}), random({1, 5, 3}, 11), random({1, 1, 3}, 12)}) {
    const Clusters few = balanced_kmeans(points, 16, 8, 0.1, 3);
    EXPECT_TRUE(at::isfinite(few.centers).all().item<bool>());
    EXPECT_TRUE(at::isfinite(few.potentials).all().item<bool>());
  }
  EXPECT_THROW(balanced_kmeans(at::full({1, 3, 3}, std::nan("")), 2, 2, 0.1, 1), Error);
}

}  // namespace
}  // namespace focus
