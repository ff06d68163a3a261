#include "report/judging.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "eval/statistics.h"
#include "report/testing.h"

namespace focus {
namespace {

using Relation = RecipeClaim::Relation;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Cell sampled(double value, std::vector<double> samples) {
  Cell cell;
  cell.value = value;
  cell.repetitions = {value};
  cell.samples = std::move(samples);
  return cell;
}

Cell repeated(std::vector<double> values) {
  Cell cell;
  cell.repetitions = values;
  for (const double value : values) cell.value += value / static_cast<double>(values.size());
  cell.repeated = true;
  return cell;
}

TEST(Judging, ADifferenceMustExceedTheNoise) {
  EXPECT_EQ(judge(-0.21, 0.2, Relation::kBelow, 0), Verdict::kHeld);
  EXPECT_EQ(judge(-0.19, 0.2, Relation::kBelow, 0), Verdict::kUnclear);
  EXPECT_EQ(judge(0.19, 0.2, Relation::kBelow, 0), Verdict::kUnclear);
  EXPECT_EQ(judge(0.21, 0.2, Relation::kBelow, 0), Verdict::kNotHeld);
  EXPECT_EQ(judge(0.21, 0.2, Relation::kAbove, 0), Verdict::kHeld);
  EXPECT_EQ(judge(-0.21, 0.2, Relation::kAbove, 0), Verdict::kNotHeld);
  EXPECT_EQ(judge(-0.001, 0, Relation::kBelow, 0), Verdict::kHeld);
  EXPECT_EQ(judge(0, 0, Relation::kBelow, 0), Verdict::kNotHeld);
  EXPECT_EQ(judge(-5, kNaN, Relation::kBelow, 0), Verdict::kUnclear);
}

TEST(Judging, EqualityNeedsNoiseSmallerThanTheMargin) {
  EXPECT_EQ(judge(0.004, 0.004, Relation::kNear, 0.01), Verdict::kHeld);
  EXPECT_EQ(judge(-0.007, 0.004, Relation::kNear, 0.01), Verdict::kUnclear);
  EXPECT_EQ(judge(0, 0.012, Relation::kNear, 0.01), Verdict::kUnclear);
  EXPECT_EQ(judge(-0.015, 0.004, Relation::kNear, 0.01), Verdict::kNotHeld);
}

TEST(Judging, FewValuesTellLittle) {
  EXPECT_NEAR(noise_factor(2), 12.966, 1e-3);
  EXPECT_NEAR(noise_factor(8), 2.413, 1e-3);
  EXPECT_NEAR(noise_factor(31), 2.084, 1e-3);
  EXPECT_NEAR(noise_factor(32), 2.078, 2e-3);  // Where the table ends.
  EXPECT_NEAR(noise_factor(100000), 2, 1e-3);
  // Differences 0.9 and 1.1: ten standard errors and still unclear; as sure with four of each.
  const Comparison two = compare(sampled(2, {1.9, 2.1}), sampled(1, {1, 1}), 1, false);
  EXPECT_NEAR(two.error, 0.1, 1e-12);
  EXPECT_EQ(judge(two.difference, two.noise, Relation::kAbove, 0), Verdict::kUnclear);
  const Comparison eight =
      compare(sampled(2, {1.9, 2.1, 1.9, 2.1, 1.9, 2.1, 1.9, 2.1}), sampled(1, std::vector<double>(8, 1.0)), 1, false);
  EXPECT_EQ(judge(eight.difference, eight.noise, Relation::kAbove, 0), Verdict::kHeld);
  EXPECT_NEAR(eight.noise, noise_factor(8) * eight.error, 1e-12);
}

TEST(Judging, WindowsCountByTheirTokens) {
  const std::vector<double> losses = {3.0, 1.0, 2.0}, tokens = {10, 100, 50};
  const std::vector<double> samples = weighted_samples(losses, tokens);
  const std::vector<double> sums = {30, 100, 100};
  const MeanError ratio = ratio_error(sums, tokens), mean = mean_error(samples);
  EXPECT_NEAR(mean.mean, 230.0 / 160, 1e-12);
  EXPECT_NEAR(mean.error, ratio.error, 1e-12);
  EXPECT_EQ(weighted_samples(losses, {5, 5, 5}), losses);
  EXPECT_THROW(weighted_samples(losses, {5, 5}), Error);
}

TEST(Judging, WindowsArePaired) {
  // The windows differ much more from each other than the rows do.
  const Cell a = sampled(std::exp(3.0), {1.0, 3.0, 5.0}), b = sampled(std::exp(3.1), {1.1, 3.1, 5.1});
  const Comparison comparison = compare(a, b, 1, true);
  EXPECT_NEAR(comparison.difference, -0.1, 1e-12);
  EXPECT_NEAR(comparison.error, 0, 1e-12);
  // Not as many: each row's own error counts, 2 / sqrt(3) and 2 / sqrt(2).
  const Comparison apart = compare(a, sampled(std::exp(3.1), {1.1, 5.1}), 1, true);
  EXPECT_NEAR(apart.error, std::sqrt(4.0 / 3 + 4), 1e-12);
}

TEST(Judging, FactorsScaleTheRightSide) {
  EXPECT_NEAR(compare(sampled(11, {}), sampled(10, {}), 1.1, true).difference, 0, 1e-12);
  const Comparison linear = compare(sampled(2, {1, 3}), sampled(3, {0, 6}), 0.5, false);
  EXPECT_NEAR(linear.difference, 0.5, 1e-12);
  EXPECT_NEAR(linear.error, 0.5, 1e-12);  // Differences 1 and 0.
}

TEST(Judging, RepetitionsAreNoiseOnTopOfWindows) {
  Cell a = repeated({1.0, 3.0}), b = repeated({1.5, 3.1});
  EXPECT_NEAR(compare(a, b, 1, false).error, 0.2, 1e-12);  // Differences -0.5 and -0.1.
  a.samples = {1, 2};
  b.samples = {1, 2.8};  // Differences 0 and -0.8: standard error 0.4.
  EXPECT_NEAR(compare(a, b, 1, false).error, std::hypot(0.2, 0.4), 1e-12);
  EXPECT_TRUE(std::isnan(compare(sampled(1, {}), sampled(2, {}), 1, false).error));
}

TEST(Judging, OwnErrors) {
  Cell windows = sampled(std::exp(2.0), {1.0, 3.0});
  estimate_error(windows, true);
  EXPECT_NEAR(windows.error, std::exp(2.0), 1e-9);  // 1 nat.
  Cell time = sampled(10, {});
  time.low = 9;
  time.high = 13;
  estimate_error(time, false);
  EXPECT_NEAR(time.error, 1, 1e-12);
  Cell count = sampled(3, {});
  estimate_error(count, false);
  EXPECT_TRUE(std::isnan(count.error));
  count.exact = true;
  estimate_error(count, false);
  EXPECT_EQ(count.error, 0);
}

class Claims : public ::testing::Test {
 protected:
  Claims() {
    table_ = small_table();
    claim_.text = "a below b";
    claim_.left = {.row = "a", .column = "ppl", .number = 0};
    claim_.right = {{.row = "b", .column = "ppl", .number = 0}};
  }
  Verdict verdict() const { return judge_claim(claim_, table_).verdict; }

  Table table_;
  RecipeClaim claim_;
};

TEST_F(Claims, AllComparisonsMustHold) {
  EXPECT_EQ(verdict(), Verdict::kHeld);
  claim_.right.push_back({.row = "", .column = "", .number = 1000});
  EXPECT_EQ(verdict(), Verdict::kHeld);
  claim_.right.push_back({.row = "", .column = "", .number = 1});
  EXPECT_EQ(verdict(), Verdict::kNotHeld);
}

TEST_F(Claims, WithoutFiguresNothingIsSaid) {
  claim_.right = {{.row = "absent", .column = "ppl", .number = 0}};
  EXPECT_EQ(verdict(), Verdict::kNotMeasured);
  claim_.right.push_back({.row = "b", .column = "ppl", .number = 0});
  const JudgedClaim judged = judge_claim(claim_, table_);
  EXPECT_EQ(judged.verdict, Verdict::kUnclear);
  EXPECT_NE(judged.reason, "");
}

TEST_F(Claims, RowsThatLeakProveNothing) {
  table_.rows[0].leaks = true;
  EXPECT_EQ(verdict(), Verdict::kUnclear);
  claim_.leaks = true;
  EXPECT_EQ(verdict(), Verdict::kHeld);
}

}  // namespace
}  // namespace focus
