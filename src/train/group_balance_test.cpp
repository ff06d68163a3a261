#include "train/group_balance.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "attention/methods/full.h"
#include "attention/routing/sinkhorn.h"
#include "base/error.h"
#include "train/soft_gate_attention.h"

namespace focus {
namespace {

at::Tensor random(at::IntArrayRef shape, uint64_t seed, at::ScalarType type = at::kFloat) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions(type));
}

TEST(GroupMemberships, AreThoseOfTheirNormaliser) {
  const at::Tensor scores = random({1, 2, 30, 4}, 1), b = random({2, 4}, 2);
  const auto by = [&](GroupNormaliser normaliser) { return group_memberships(scores, b, normaliser, 7); };
  EXPECT_TRUE(at::equal(by(GroupNormaliser::kSinkhorn), sinkhorn_memberships(scores, 7)));
  const at::Tensor e = scores.exp(), weighted = (scores + b.view({1, 2, 1, 4})).exp();
  EXPECT_TRUE(at::allclose(by(GroupNormaliser::kSoftmax), e / e.sum(-1, true)));
  EXPECT_TRUE(at::allclose(by(GroupNormaliser::kPotentials), weighted / weighted.sum(-1, true)));
}

/// The formula in plain loops.
double plain_loss(const at::Tensor& q, double weight) {
  const int64_t sets = q.size(0), tokens = q.size(1), groups = q.size(2);
  double loss = 0;
  for (int64_t h = 0; h < sets; ++h) {
    double entropy = 0, mean_entropy = 0;
    for (int64_t k = 0; k < groups; ++k) {
      double mean = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        const auto p = q[h][t][k].item<double>();
        entropy -= p * std::log(p) / static_cast<double>(tokens);
        mean += p / static_cast<double>(tokens);
      }
      mean_entropy -= mean * std::log(mean);
    }
    loss += (entropy + weight * (std::log(static_cast<double>(groups)) - mean_entropy)) / static_cast<double>(sets);
  }
  return loss;
}

TEST(EntropyBalanceLoss, EqualsItsFormulaAndGradient) {
  const at::Tensor scores = random({2, 5, 3}, 3, at::kDouble);
  for (const double weight : {0.0, 1.0, 5.0}) {
    const at::Tensor leaf = scores.clone().set_requires_grad(true);
    const at::Tensor loss = entropy_balance_loss(leaf.softmax(-1), weight);
    EXPECT_NEAR(loss.item<double>(), plain_loss(scores.softmax(-1), weight), 1e-12);
    const at::Tensor gradient = torch::autograd::grad({loss}, {leaf})[0];
    constexpr double kStep = 1e-6;
    for (int64_t i = 0; i < scores.numel(); ++i) {
      at::Tensor up = scores.clone(), down = scores.clone();
      up.view(-1)[i] += kStep;
      down.view(-1)[i] -= kStep;
      const double slope = (plain_loss(up.softmax(-1), weight) - plain_loss(down.softmax(-1), weight)) / (2 * kStep);
      EXPECT_NEAR(gradient.view(-1)[i].item<double>(), slope, 1e-8);
    }
  }
}

TEST(EntropyBalanceLoss, IsZeroForDecidedEvenGroupsOnly) {
  const double log4 = std::log(4.0);
  EXPECT_NEAR(entropy_balance_loss(at::eye(4), 5).item<double>(), 0, 1e-6);
  EXPECT_NEAR(entropy_balance_loss(at::full({9, 4}, 0.25), 5).item<double>(), log4, 1e-6);
  at::Tensor one = at::zeros({9, 4});
  one.select(1, 2).fill_(1);
  EXPECT_NEAR(entropy_balance_loss(one, 5).item<double>(), 5 * log4, 1e-6);
}

TEST(EmaCentroids, MoveTowardsTheMeansOfTheirTokens) {
  const at::Tensor centroids = random({2, 3, 4}, 4), features = random({2, 10, 4}, 5);
  const at::Tensor groups = at::tensor({0, 0, 2, 0, 2, 2, 2, 0, 0, 0}, at::kLong).repeat({2, 1});  // None in group 1.
  const at::Tensor moved = ema_centroids(centroids, features, groups, 0.75);
  for (int64_t h = 0; h < 2; ++h) {
    EXPECT_TRUE(at::equal(moved[h][1], centroids[h][1]));
    for (const int64_t k : {0, 2}) {
      const at::Tensor mean = features[h].index_select(0, groups[h].eq(k).nonzero().squeeze(1)).mean(0);
      EXPECT_TRUE(at::allclose(moved[h][k], 0.75 * centroids[h][k] + 0.25 * mean, 1e-5, 1e-6));
    }
  }
  EXPECT_THROW(ema_centroids(centroids, random({2, 10, 5}, 6), groups, 0.5), Error);
}

TEST(Recluster, FindsSeparateClustersAtTheFormerScale) {
  // Three far blobs of 12, 5 and 3 points, all shifted far away.
  at::Tensor sites = at::zeros({3, 5});
  sites.slice(1, 0, 2).copy_(at::tensor({10.0, 0.0, -5.0, 9.0, -5.0, -9.0}).view({3, 2}));
  const at::Tensor which = at::cat({at::zeros({12}, at::kLong), at::full({5}, int64_t{1}), at::full({3}, int64_t{2})});
  const at::Tensor shift = at::tensor({30.0, -20.0, 100.0, 100.0, -100.0}).to(at::kFloat);
  const at::Tensor features = (sites.index_select(0, which) + 0.01 * random({20, 5}, 7) + shift).unsqueeze(0);
  const at::Tensor former = random({1, 3, 5}, 8);
  int found = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const at::Tensor made = recluster(features, former, 10, seed);
    EXPECT_TRUE(at::equal(made, recluster(features, former, 10, seed)));
    const at::Tensor norms = made.norm(2, at::IntArrayRef{-1});
    EXPECT_TRUE(at::allclose(norms, former.norm(2, at::IntArrayRef{-1}).mean().expand_as(norms), 1e-4, 1e-5));
    // By the scores that routers give: without the shift's part no group is ahead at every token.
    const at::Tensor groups = at::matmul(features, made.transpose(1, 2)).argmax(-1)[0];
    const at::Tensor same = groups.unsqueeze(0).eq(groups.unsqueeze(1));
    found += at::equal(same, which.unsqueeze(0).eq(which.unsqueeze(1))) ? 1 : 0;
  }
  // Random starts miss a small blob now and then.
  EXPECT_GE(found, 5);
  EXPECT_THROW(recluster(features, random({1, 3, 3}, 8), 10, 0), Error);
}

TEST(StopGradient, KeepsGroupsFromMovingHiddenStates) {
  std::map<int64_t, LayerRouter> routers;
  routers[0].projection = random({1, 4, 16}, 9);
  routers[0].centroids = random({1, 3, 4}, 10).set_requires_grad(true);
  RoutingConfig config = RoutingConfig::symmetric_defaults();
  config.groups = 3;
  config.group_dim = 4;
  config.window = 2;
  config.shared = true;
  const auto gradient_of_hidden = [&](GroupMitigation mitigation) {
    SoftGateAttention method(config, 5, routers,
                             {.normaliser = GroupNormaliser::kSoftmax, .mitigation = mitigation, .balance_weight = 1});
    AttentionInput input;
    input.hidden = random({1, 20, 16}, 11).set_requires_grad(true);
    input.q = input.k = input.v = random({1, 2, 20, 8}, 12);
    method.attend(input).square().sum().backward();
    EXPECT_GT(routers[0].centroids.grad().abs().sum().item<double>(), 0);
    routers[0].centroids.mutable_grad().reset();
    EXPECT_EQ(method.auxiliary_loss().defined(), mitigation == GroupMitigation::kEntropyBalance);
    return input.hidden.grad();
  };
  EXPECT_GT(gradient_of_hidden(GroupMitigation::kNone).abs().sum().item<double>(), 0);
  EXPECT_GT(gradient_of_hidden(GroupMitigation::kEntropyBalance).abs().sum().item<double>(), 0);
  EXPECT_FALSE(gradient_of_hidden(GroupMitigation::kStopGradient).defined());
}

}  // namespace
}  // namespace focus
