#include "models/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace focus {
namespace {

using nlohmann::json;

RopeConfig read(const json& config) {
  return RopeConfig::read(ConfigFields(config, "config.json"));
}

TEST(Rope, DefaultFrequenciesAreTheFormula) {
  const at::Tensor frequencies = rope_inverse_frequencies(read(json::object()), 8, 100);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(frequencies[i].item<double>(), std::pow(10000.0, -2.0 * static_cast<double>(i) / 8), 1e-7);
  }
}

TEST(Rope, ReadsBothFormsOfTheConfiguration) {
  const RopeConfig old_form = read(
      {{"rope_theta", 5e5}, {"max_position_embeddings", 1024}, {"rope_scaling", {{"type", "linear"}, {"factor", 2}}}});
  const RopeConfig new_form =
      read({{"max_position_embeddings", 1024},
            {"rope_parameters", {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 5e5}}}});
  for (const RopeConfig& config : {old_form, new_form}) {
    EXPECT_EQ(config.type, "linear");
    EXPECT_EQ(config.theta, 5e5);
    EXPECT_EQ(config.factor, 2);
    EXPECT_EQ(config.max_positions, 1024);
  }
  EXPECT_EQ(read({{"rope_scaling", nullptr}, {"rope_theta", 100.0}}).theta, 100.0);
}

TEST(Rope, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(read({{"rope_scaling", {{"type", "longrope"}, {"factor", 2}}}}), Error);
  EXPECT_THROW(read({{"rope_scaling", {{"type", "linear"}}}}), Error);
  EXPECT_THROW(read({{"rope_scaling", {{"type", "linear"}, {"factor", 0}}}}), Error);
  EXPECT_THROW(read({{"rope_parameters", {{"sliding", {{"rope_type", "default"}}}}}}), Error);
  EXPECT_THROW(read({{"partial_rotary_factor", 0.5}}), Error);
  EXPECT_THROW(read({{"rope_theta", "many"}}), Error);
  EXPECT_THROW(
      read({{"rope_scaling", {{"type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 1}}}}),
      Error);
}

/// The rotation keeps lengths, and the product of two rotated vectors depends on their distance only.
TEST(Rope, RotatesByRelativePosition) {
  const Rope rope(read(json::object()), 16);
  const at::Tensor q = at::randn({1, 1, 1, 16});
  const at::Tensor k = at::randn({1, 1, 1, 16});
  const auto score = [&](int64_t i, int64_t j) {
    const auto [cos_i, sin_i] = rope.tables(at::tensor({i}).view({1, 1}), at::kFloat);
    const at::Tensor turned = Rope::apply(q, cos_i, sin_i);
    EXPECT_NEAR(turned.norm().item<double>(), q.norm().item<double>(), 1e-5);
    const auto [cos_j, sin_j] = rope.tables(at::tensor({j}).view({1, 1}), at::kFloat);
    return (turned * Rope::apply(k, cos_j, sin_j)).sum().item<double>();
  };
  EXPECT_NEAR(score(7, 3), score(104, 100), 1e-4);
  EXPECT_NEAR(score(0, 0), (q * k).sum().item<double>(), 1e-5);
}

TEST(Rope, TablesFollowThePositionsGiven) {
  const Rope rope(read(json::object()), 8);
  at::Tensor positions = at::arange(4).view({1, 4});
  const at::Tensor before = rope.tables(positions, at::kFloat).first.clone();
  EXPECT_TRUE(rope.tables(positions, at::kFloat).first.equal(before));
  positions.add_(5);
  EXPECT_FALSE(rope.tables(positions, at::kFloat).first.equal(before)) << "a table of other positions was reused";
  EXPECT_EQ(rope.tables(positions, at::kBFloat16).first.scalar_type(), at::kBFloat16);
}

TEST(Rope, DynamicFrequenciesChangeBeyondTheTrainedLength) {
  const RopeConfig config =
      read({{"max_position_embeddings", 64}, {"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}});
  const at::Tensor within = rope_inverse_frequencies(config, 8, 64);
  EXPECT_TRUE(within.equal(rope_inverse_frequencies(config, 8, 3)));
  // base * (2 * 128 / 64 - 1)^(8/6)
  const double base = 10000.0 * std::pow(3.0, 8.0 / 6.0);
  EXPECT_NEAR(rope_inverse_frequencies(config, 8, 128)[3].item<double>(), std::pow(base, -0.75), 1e-9);
}

}  // namespace
}  // namespace focus
