#include "kernels/cpu/tile_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/isa/tile_math.h"

namespace focus::kernels::cpu {
namespace {

std::vector<float> random_floats(size_t count, float size = 1.0F) {
  static std::mt19937 generator(7);
  std::uniform_real_distribution<float> uniform(-size, size);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

std::vector<const float*> row_pointers(const std::vector<float>& values, int64_t rows, int64_t width) {
  std::vector<const float*> pointers(rows);
  for (int64_t r = 0; r < rows; ++r) pointers[r] = values.data() + r * width;
  return pointers;
}

// What this machine uses, and what every machine can use.
struct Functions {
  decltype(&multiply) product;
  decltype(&softmax_step) step;
};

class TileMath : public ::testing::TestWithParam<Functions> {};

INSTANTIATE_TEST_SUITE_P(InstructionSets, TileMath,
                         ::testing::Values(Functions{multiply, softmax_step},
                                           Functions{baseline::multiply, baseline::softmax_step}));

TEST_P(TileMath, MultiplyAllRowCounts) {
  constexpr int64_t kDepth = 37;
  for (int64_t m = 1; m <= 14; ++m) {
    for (const bool accumulate : {false, true}) {
      const std::vector<float> a = random_floats(m * kDepth);
      const std::vector<float> b = random_floats(kDepth * 32);
      const float start = accumulate ? 0.5F : std::numeric_limits<float>::quiet_NaN();
      std::vector<float> c(m * 32, start);
      std::vector<float*> c_rows(m);
      for (int64_t i = 0; i < m; ++i) c_rows[i] = c.data() + i * 32;
      // a is stored transposed, [depth][m].
      std::vector<const float*> columns(m);
      for (int64_t i = 0; i < m; ++i) columns[i] = a.data() + i;
      GetParam().product(m, 32, kDepth, 0.25F, columns.data(), m, row_pointers(b, kDepth, 32).data(), c_rows.data(),
                         accumulate);
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < 32; ++j) {
          double expected = 0.0;
          for (int64_t x = 0; x < kDepth; ++x) expected += static_cast<double>(a[x * m + i]) * b[x * 32 + j];
          expected = 0.25 * expected + (accumulate ? 0.5 : 0.0);
          ASSERT_NEAR(c[i * 32 + j], expected, 1e-5) << "m " << m << " cell " << i << ", " << j;
        }
      }
    }
  }
}

// One row of scores through softmax_step, which shows the exponential function by itself.
TEST_P(TileMath, ExponentialsAreExactToAFewRoundings) {
  constexpr int64_t kWidth = 4096;
  std::vector<float> scores(kWidth);
  for (int64_t x = 0; x < kWidth; ++x) scores[x] = -87.0F * static_cast<float>(x) / kWidth;
  const std::vector<float> before = scores;
  float maximum = -std::numeric_limits<float>::infinity();
  float sum = 0.0F;
  std::vector<float> out(16, 0.0F);
  float* maximum_row = &maximum;
  float* sum_row = &sum;
  float* out_row = out.data();
  const int32_t begin = 0;
  const int32_t end = kWidth;
  GetParam().step({1, 1, kWidth, scores.data(), &begin, &end, 0.0F}, &maximum_row, &sum_row, &out_row, 16);
  double total = 0.0;
  for (int64_t x = 0; x < kWidth; ++x) {
    const double expected = std::exp(static_cast<double>(before[x]));
    total += expected;
    ASSERT_NEAR(scores[x] / expected, 1.0, 3e-7) << before[x];
  }
  EXPECT_EQ(maximum, 0.0F);
  EXPECT_NEAR(sum / total, 1.0, 1e-6);
}

TEST_P(TileMath, SoftmaxStepMasksAndRescales) {
  // Two tiles of one query against the softmax over both; of the second only keys 3..9 count.
  std::vector<float> first = random_floats(16, 4.0F);
  std::vector<float> second = random_floats(16, 8.0F);
  const std::vector<float> all_first = first;
  const std::vector<float> all_second = second;
  float maximum = -std::numeric_limits<float>::infinity();
  float sum = 0.0F;
  std::vector<float> out(16, 1.0F);
  float* maximum_row = &maximum;
  float* sum_row = &sum;
  float* out_row = out.data();
  const int32_t starts[] = {0, 3, 5};
  const int32_t ends[] = {16, 10, 5};
  GetParam().step({1, 1, 16, first.data(), &starts[0], &ends[0], 0.0F}, &maximum_row, &sum_row, &out_row, 16);
  const float before = maximum;
  std::fill(out.begin(), out.end(), 1.0F);
  GetParam().step({1, 1, 16, second.data(), &starts[1], &ends[1], 0.0F}, &maximum_row, &sum_row, &out_row, 16);
  double total = 0.0;
  for (int64_t x = 0; x < 16; ++x) total += std::exp(static_cast<double>(all_first[x]));
  for (int64_t x = 3; x < 10; ++x) total += std::exp(static_cast<double>(all_second[x]));
  EXPECT_NEAR(maximum + std::log(sum), std::log(total), 1e-5);
  EXPECT_NEAR(out[5], std::exp(before - maximum), 1e-6);
  for (int64_t x = 0; x < 16; ++x) {
    if (x < 3 || x >= 10) {
      EXPECT_EQ(second[x], 0.0F);
    }
  }
  // A query without keys in the tile keeps its state.
  const float kept = sum;
  GetParam().step({1, 1, 16, first.data(), &starts[2], &ends[2], 0.0F}, &maximum_row, &sum_row, &out_row, 16);
  EXPECT_EQ(sum, kept);
  EXPECT_EQ(first[7], 0.0F);
}

}  // namespace
}  // namespace focus::kernels::cpu
