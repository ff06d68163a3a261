#include "attention/routing/rows.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace focus {
namespace {

std::vector<float> random_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& x : values) x = normal(random);
  return values;
}

TEST(Rows, ProductEqualsASequentialSumBitForBit) {
  for (const auto& [rows, depth, columns] : {std::tuple{1, 1, 1}, {7, 17, 3}, {64, 576, 99}, {9, 33, 64}, {5, 2, 16}}) {
    const std::vector<float> a = random_values(static_cast<size_t>(rows * depth), 1);
    const std::vector<float> w = random_values(static_cast<size_t>(depth * columns), 2);
    PackedMatrix matrix(depth, columns);
    for (int x = 0; x < depth; ++x) {
      for (int c = 0; c < columns; ++c) matrix.set(x, c, w[static_cast<size_t>(x * columns + c)]);
    }
    const int64_t stride = matrix.padded_columns();
    std::vector<float> out(static_cast<size_t>(rows * stride), std::nanf(""));
    multiply_rows(a.data(), rows, depth, matrix, out.data(), stride);
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        float sum = 0;
        for (int x = 0; x < depth; ++x) {
          const float product = a[static_cast<size_t>(r * depth + x)] * w[static_cast<size_t>(x * columns + c)];
          sum += product;
        }
        ASSERT_EQ(out[static_cast<size_t>(r * stride + c)], sum) << rows << "x" << depth << "x" << columns;
      }
    }
  }
}

RC_GTEST_PROP(Rows, ArgmaxTakesTheFirstOfTheLargest, (std::vector<uint8_t> raw)) {
  RC_PRE(!raw.empty());
  std::vector<float> values(raw.begin(), raw.end());
  const auto expected = std::max_element(values.begin(), values.end()) - values.begin();
  RC_ASSERT(argmax_row(values.data(), 0, static_cast<int64_t>(values.size())) == expected);
}

RC_GTEST_PROP(Rows, TopEqualsAStableSort, (std::vector<uint8_t> raw)) {
  RC_PRE(!raw.empty());
  std::vector<float> values;
  for (uint8_t x : raw) values.push_back(static_cast<float>(x % 8));
  const auto n = static_cast<int64_t>(values.size());
  const auto count = *rc::gen::inRange<int64_t>(1, n + 1);
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
    return values[static_cast<size_t>(x)] > values[static_cast<size_t>(y)];
  });
  order.resize(static_cast<size_t>(count));
  std::vector<int32_t> got;
  top_row(values.data(), 0, n, count, got);
  RC_ASSERT(got == order);
}

TEST(Rows, TopOfManyEqualsTopOfFew) {
  const std::vector<float> values = random_values(4095, 3);
  std::vector<int32_t> many;
  std::vector<int32_t> few;
  top_row(values.data(), 1, 4095, 512, many);
  top_row(values.data(), 1, 4095, 32, few);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_EQ(std::count(many.begin(), many.end(), 0), 0);
}

}  // namespace
}  // namespace focus
