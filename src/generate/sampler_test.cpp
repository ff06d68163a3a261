#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "base/error.h"

namespace focus {
namespace {

std::vector<double> frequencies(const SamplingOptions& options, const at::Tensor& logits, int64_t draws) {
  Sampler sampler(options);
  const at::Tensor ids = sampler.sample(logits.expand({draws, logits.size(0)}));
  const at::Tensor counts = at::bincount(ids, {}, logits.size(0)).to(at::kDouble) / static_cast<double>(draws);
  return {counts.data_ptr<double>(), counts.data_ptr<double>() + counts.numel()};
}

TEST(Sampler, TemperatureZeroIsGreedyAndTiesGoToTheLowestId) {
  Sampler sampler({});
  EXPECT_EQ(sampler.sample(at::tensor({1.0F, 5.0F, 5.0F, 2.0F}).unsqueeze(0)).item<int64_t>(), 1);
}

TEST(Sampler, DrawsWithTheProbabilitiesOfTheSoftmax) {
  const at::Tensor probabilities = at::tensor({0.5, 0.3, 0.15, 0.05});
  const auto seen = frequencies({.temperature = 1, .seed = 3}, probabilities.log(), 40000);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(seen[i], probabilities[i].item<double>(), 0.01) << i;
}

TEST(Sampler, TemperatureSharpens) {
  const auto seen = frequencies({.temperature = 0.5, .seed = 3}, at::tensor({0.6, 0.4}).log(), 40000);
  EXPECT_NEAR(seen[0], 0.36 / (0.36 + 0.16), 0.01);
}

TEST(Sampler, AnyTemperatureLeavesSomethingToDraw) {
  const at::Tensor logits = at::tensor({90.0F, 100.0F, 99.0F, 98.0F});
  EXPECT_EQ(frequencies({.temperature = 1e-300, .seed = 1}, logits, 100)[1], 1);
  EXPECT_EQ(frequencies({.temperature = 1e-40, .top_p = 0.9, .min_p = 0.1, .seed = 1}, logits, 100)[1], 1);
  EXPECT_NEAR(frequencies({.temperature = 1e300, .seed = 1}, logits, 20000)[0], 0.25, 0.015);
  const auto two = frequencies({.temperature = 1e50, .top_k = 2, .seed = 1}, logits, 1000);
  EXPECT_EQ(two[0] + two[3], 0);
}

TEST(Sampler, RefusesInfiniteLogitsAndTakesThoseThatRuleATokenOut) {
  const float infinity = std::numeric_limits<float>::infinity();
  Sampler sampler({.temperature = 1, .model = "folder"});
  EXPECT_EQ(sampler.sample(at::tensor({-infinity, 2.0F}).unsqueeze(0)).item<int64_t>(), 1);
  for (const at::Tensor& logits : {at::tensor({infinity, 2.0F}), at::tensor({-infinity, -infinity})}) {
    try {
      sampler.sample(logits.unsqueeze(0));
      FAIL() << "drawn";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("folder gives infinite logits"), std::string::npos) << e.what();
    }
  }
}

TEST(Sampler, TopKAndTopPCutTheTail) {
  const at::Tensor logits = at::tensor({0.5, 0.3, 0.15, 0.05}).log();
  const auto top_k = frequencies({.temperature = 1, .top_k = 2, .seed = 1}, logits, 20000);
  EXPECT_NEAR(top_k[0], 0.5 / 0.8, 0.015);
  EXPECT_EQ(top_k[2] + top_k[3], 0);
  const auto top_p = frequencies({.temperature = 1, .top_p = 0.7, .seed = 1}, logits, 20000);
  EXPECT_NEAR(top_p[1], 0.3 / 0.8, 0.015);
  EXPECT_EQ(top_p[2] + top_p[3], 0);
  const auto tiny = frequencies({.temperature = 1, .top_p = 1e-9, .seed = 1}, logits, 100);
  EXPECT_EQ(tiny[0], 1);
}

TEST(Sampler, MinPCutsByTheMostLikelyToken) {
  const at::Tensor logits = at::tensor({0.5, 0.3, 0.15, 0.05}).log();
  const auto seen = frequencies({.temperature = 1, .min_p = 0.31, .seed = 1}, logits, 20000);
  EXPECT_NEAR(seen[0], 0.5 / 0.8, 0.015);
  EXPECT_EQ(seen[2] + seen[3], 0);
  EXPECT_GT(frequencies({.temperature = 1, .min_p = 0.29, .seed = 1}, logits, 20000)[2], 0.1);
}

TEST(Sampler, RepetitionPenaltyTouchesSeenTokensOnly) {
  const at::Tensor logits = at::tensor({3.0F, 2.0F, -1.0F, -1.2F}).unsqueeze(0);
  Sampler sampler({.repetition_penalty = 2});
  EXPECT_EQ(sampler.sample(logits).item<int64_t>(), 0);
  EXPECT_EQ(sampler.sample(logits, {0, 0}).item<int64_t>(), 1) << "3 / 2 is below 2, whatever the count";
  EXPECT_EQ(sampler.sample(logits, {0, 1, 3}).item<int64_t>(), 0) << "3 / 2 is above 2 / 2";
  const at::Tensor negative = at::tensor({-1.0F, -1.5F}).unsqueeze(0);
  EXPECT_EQ(sampler.sample(negative, {0}).item<int64_t>(), 1) << "negative scores are multiplied";
}

TEST(Sampler, SameSeedSameTokens) {
  const at::Tensor logits = at::zeros({64, 100});
  Sampler a({.temperature = 1, .seed = 7}), b({.temperature = 1, .seed = 7}), c({.temperature = 1, .seed = 8});
  const at::Tensor first = a.sample(logits);
  EXPECT_TRUE(at::equal(first, b.sample(logits)));
  EXPECT_FALSE(at::equal(first, c.sample(logits)));
}

TEST(Sampler, RefusesBadValues) {
  EXPECT_THROW(Sampler({.temperature = -1}), UsageError);
  EXPECT_THROW(Sampler({.temperature = std::numeric_limits<double>::quiet_NaN()}), UsageError);
  EXPECT_THROW(Sampler({.top_k = -1}), UsageError);
  EXPECT_THROW(Sampler({.top_p = 0}), UsageError);
  EXPECT_THROW(Sampler({.top_p = 1.5}), UsageError);
  EXPECT_THROW(Sampler({.min_p = 1}), UsageError);
  EXPECT_THROW(Sampler({.min_p = -0.1}), UsageError);
  EXPECT_THROW(Sampler({.repetition_penalty = 0}), UsageError);
  Sampler sampler({});
  EXPECT_THROW(sampler.sample(at::tensor({1.0F, std::nanf("")}).unsqueeze(0)), Error);
}

}  // namespace
}  // namespace focus
