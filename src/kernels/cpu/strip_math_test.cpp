#include "kernels/cpu/strip_math.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/isa/strip_math.h"

namespace focus::kernels::cpu {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_floats(int64_t count, float size = 1.0F) {
  static std::mt19937 generator(7);
  std::uniform_real_distribution<float> uniform(-size, size);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(generator);
  return values;
}

template <typename Pointer, typename Values>
std::vector<Pointer> row_pointers(Values& values, int64_t rows, int64_t width) {
  std::vector<Pointer> pointers(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) pointers[static_cast<size_t>(r)] = values.data() + r * width;
  return pointers;
}

// All that this machine can run, and the code of avx512 with split vectors.
std::vector<const StripMath*> all_math() {
  std::vector<const StripMath*> all = available_strip_math();
  all.push_back(&wide::strip_math());
  return all;
}

class Strips : public ::testing::TestWithParam<const StripMath*> {
 protected:
  const StripMath& math_ = *GetParam();
  const int64_t lanes_ = math_.lanes;
};

INSTANTIATE_TEST_SUITE_P(InstructionSets, Strips, ::testing::ValuesIn(all_math()),
                         [](const auto& math) { return fmt::format("{}_{}", math.index, math.param->name); });

TEST_P(Strips, Transpose) {
  for (const int64_t dim : {1, 4, 7, 64}) {
    const std::vector<float> rows = random_floats(lanes_ * dim);
    std::vector<float> out(static_cast<size_t>(lanes_ * dim), kNan);
    math_.transpose(row_pointers<const float*>(rows, lanes_, dim).data(), dim, out.data());
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      for (int64_t d = 0; d < dim; ++d) ASSERT_EQ(out[d * lanes_ + lane], rows[lane * dim + d]);
    }
  }
}

TEST_P(Strips, Products) {
  constexpr int64_t kDim = 37;
  const std::vector<float> columns = random_floats(kDim * lanes_);
  for (const bool diagonal : {false, true}) {
    for (int64_t count = 1; count <= 90; count += count < 17 ? 1 : 13) {
      const std::vector<float> keys = random_floats(count * kDim);
      std::vector<float> out(static_cast<size_t>((count + kKeySlack) * lanes_), kNan);
      // All keys for all lanes, or runs that move along the lanes, as those of a window do.
      std::vector<int32_t> begin(lanes_, 0), end(lanes_, static_cast<int32_t>(count));
      for (int64_t i = 0; diagonal && i < lanes_; ++i) {
        begin[i] = static_cast<int32_t>(std::clamp<int64_t>(i - 5, 0, count));
        end[i] = static_cast<int32_t>(std::clamp<int64_t>(count - lanes_ + i, 0, count));
      }
      math_.products({count, out.data(), begin.data(), end.data()}, columns.data(), kDim,
                     row_pointers<const float*>(keys, count, kDim).data(), 0.25F);
      for (int64_t lane = 0; lane < lanes_; ++lane) {
        for (int64_t x = begin[lane]; x < end[lane]; ++x) {
          double expected = 0.0;
          for (int64_t d = 0; d < kDim; ++d) {
            expected += 0.25 * static_cast<double>(columns[d * lanes_ + lane]) * keys[x * kDim + d];
          }
          ASSERT_NEAR(out[x * lanes_ + lane], expected, 1e-6) << "key " << x << " of " << count << ", lane " << lane;
        }
      }
    }
  }
}

// One key a row through softmax_step, which shows the exponential function by itself.
TEST_P(Strips, ExponentialsAreExactToAFewRoundings) {
  constexpr int64_t kKeys = 4096;
  std::vector<float> scores(static_cast<size_t>(kKeys * lanes_));
  for (int64_t x = 0; x < kKeys; ++x) {
    std::fill_n(scores.begin() + x * lanes_, lanes_, -140.0F * static_cast<float>(x) / kKeys);
  }
  const std::vector<float> before = scores;
  const std::vector<int32_t> begin(lanes_, 0);
  const std::vector<int32_t> end(lanes_, kKeys);
  std::vector<float> maximum(lanes_, -1e30F);
  std::vector<float> sum(lanes_, 0.0F);
  std::vector<float> shrink(lanes_, kNan);
  math_.softmax_step({kKeys, scores.data(), begin.data(), end.data()}, maximum.data(), sum.data(), shrink.data());
  double total = 0.0;
  for (int64_t x = 0; x < kKeys; ++x) {
    const double expected = std::exp2(static_cast<double>(before[x * lanes_]));
    total += expected;
    if (before[x * lanes_] > -126.0F) {
      ASSERT_NEAR(scores[x * lanes_] / expected, 1.0, 2e-7) << before[x * lanes_];
    } else if (before[x * lanes_] < -127.0F) {
      ASSERT_EQ(scores[x * lanes_], 0.0F) << before[x * lanes_];
    }
  }
  for (int64_t lane = 0; lane < lanes_; ++lane) {
    EXPECT_EQ(maximum[lane], 0.0F);
    EXPECT_NEAR(sum[lane] / total, 1.0, 4e-6);
    EXPECT_EQ(shrink[lane], 0.0F);
  }
}

TEST_P(Strips, SoftmaxOfTwoStepsWithRanges) {
  // Lane i meets keys i % 5 .. 10 + i % 7 of each step; the last lane meets none.
  constexpr int64_t kKeys = 19;
  std::vector<int32_t> begin(lanes_), end(lanes_);
  for (int64_t i = 0; i < lanes_; ++i) {
    begin[i] = static_cast<int32_t>(i % 5);
    end[i] = static_cast<int32_t>(10 + i % 7);
  }
  end.back() = begin.back() = 3;
  std::vector<float> maximum(lanes_, -1e30F), sum(lanes_, 0.0F), shrink(lanes_);
  std::vector<double> expected(lanes_, 0.0);
  std::vector<float> former = maximum;
  for (int step = 0; step < 2; ++step) {
    std::vector<float> scores = random_floats(kKeys * lanes_, 20.0F);
    for (int64_t x = 0; x < kKeys; ++x) {
      for (int64_t i = 0; i < lanes_; ++i) {
        float& score = scores[x * lanes_ + i];
        if (x < begin[i] || x >= end[i]) {
          score = kNan;  // never read
        } else {
          expected[i] += std::exp2(0.75 * score);
        }
      }
    }
    math_.softmax_step({kKeys, scores.data(), begin.data(), end.data(), 0.75F}, maximum.data(), sum.data(),
                       shrink.data());
    for (int64_t i = 0; i < lanes_; ++i) {
      EXPECT_NEAR(shrink[i], std::exp2(former[i] - maximum[i]), 1e-6);
      for (int64_t x = 0; x < kKeys; ++x) {
        if (x < begin[i] || x >= end[i]) {
          EXPECT_EQ(scores[x * lanes_ + i], 0.0F);
        }
      }
    }
    former = maximum;
  }
  for (int64_t i = 0; i + 1 < lanes_; ++i) EXPECT_NEAR(maximum[i] + std::log2(sum[i]), std::log2(expected[i]), 1e-5);
  EXPECT_EQ(sum.back(), 0.0F);
  EXPECT_EQ(maximum.back(), -1e30F);
  EXPECT_EQ(shrink.back(), 1.0F);
}

TEST_P(Strips, NanScoresStayNan) {
  std::vector<float> scores(static_cast<size_t>(2 * lanes_), 1.0F);
  scores[lanes_] = kNan;
  const std::vector<int32_t> begin(lanes_, 0), end(lanes_, 2);
  std::vector<float> maximum(lanes_, -1e30F), sum(lanes_, 0.0F), shrink(lanes_);
  math_.softmax_step({2, scores.data(), begin.data(), end.data()}, maximum.data(), sum.data(), shrink.data());
  EXPECT_TRUE(std::isnan(sum[0]));
  EXPECT_EQ(sum[1], 2.0F);
}

TEST_P(Strips, Gradient) {
  for (const float cap : {0.0F, 0.5F}) {
    constexpr int64_t kKeys = 9;
    std::vector<float> scores = random_floats(kKeys * lanes_);
    std::vector<float> grad = random_floats(kKeys * lanes_);
    const std::vector<float> scores_before = scores, grad_before = grad;
    std::vector<int32_t> begin(lanes_), end(lanes_);
    for (int64_t i = 0; i < lanes_; ++i) {
      begin[i] = static_cast<int32_t>(i % 4);
      end[i] = static_cast<int32_t>(4 + i % 5);
    }
    const std::vector<float> lse = random_floats(lanes_), delta = random_floats(lanes_);
    math_.softmax_gradient({kKeys, scores.data(), begin.data(), end.data(), 1.5F, cap}, grad.data(), lse.data(),
                           delta.data(), 0.5F);
    for (int64_t x = 0; x < kKeys; ++x) {
      for (int64_t i = 0; i < lanes_; ++i) {
        const int64_t cell = x * lanes_ + i;
        if (x < begin[i] || x >= end[i]) {
          ASSERT_EQ(scores[cell], 0.0F);
          ASSERT_EQ(grad[cell], 0.0F);
          continue;
        }
        const double t = std::tanh(static_cast<double>(cap * scores_before[cell]));
        const double weight = std::exp2(1.5 * (cap > 0 ? t : scores_before[cell]) - lse[i]);
        const double slope = cap > 0 ? 1 - t * t : 1.0;
        ASSERT_NEAR(scores[cell], weight, 1e-5);
        ASSERT_NEAR(grad[cell], 0.5 * weight * slope * (grad_before[cell] - delta[i]), 1e-5);
      }
    }
  }
}

TEST_P(Strips, AddRows) {
  constexpr int64_t kKeys = 21;
  for (const int64_t width : {16, 48, 112, 256}) {
    std::vector<float> weights = random_floats(kKeys * lanes_);
    std::vector<int32_t> begin(lanes_), end(lanes_);
    for (int64_t i = 0; i < lanes_; ++i) {
      begin[i] = static_cast<int32_t>(i % 4);
      end[i] = static_cast<int32_t>(15 + i % 7);
      if (i >= lanes_ - kRowGroup) begin[i] = end[i] = 0;  // a whole group without keys
      for (int64_t x = 0; x < kKeys; ++x) {
        if (x < begin[i] || x >= end[i]) weights[x * lanes_ + i] = 0.0F;
      }
    }
    const std::vector<float> rows = random_floats(kKeys * width);
    const std::vector<float> shrink = random_floats(lanes_);
    std::vector<float> out(static_cast<size_t>(lanes_ * width), 0.5F);
    math_.add_rows({kKeys, weights.data(), begin.data(), end.data()}, shrink.data(),
                   row_pointers<const float*>(rows, kKeys, width).data(), width,
                   row_pointers<float*>(out, lanes_, width).data());
    for (int64_t i = 0; i < lanes_; ++i) {
      for (int64_t d = 0; d < width; ++d) {
        double expected = i >= lanes_ - kRowGroup ? 0.5 : 0.5 * shrink[i];
        for (int64_t x = 0; x < kKeys; ++x) {
          expected += static_cast<double>(weights[x * lanes_ + i]) * rows[x * width + d];
        }
        ASSERT_NEAR(out[i * width + d], expected, 1e-5) << "lane " << i << " column " << d << " of " << width;
      }
    }
  }
}

TEST_P(Strips, AddOuterOfSeveralStrips) {
  constexpr int64_t kKeys = 20, kStrips = 3, kPadded = 24, kWidth = 48;
  const int64_t stride = (kPadded + kKeySlack) * lanes_;
  std::vector<float> weights(static_cast<size_t>(kStrips * stride), kNan);
  const int32_t begin[kStrips] = {0, 9, 14};
  const int32_t end[kStrips] = {8, 9, 20};  // the second meets none
  for (int64_t s : {0, 2}) {
    for (int64_t x = begin[s] / kRowGroup * kRowGroup; x < (end[s] + kRowGroup - 1) / kRowGroup * kRowGroup; ++x) {
      for (int64_t i = 0; i < lanes_; ++i) {
        weights[s * stride + x * lanes_ + i] = x < begin[s] || x >= end[s] ? 0.0F : random_floats(1)[0];
      }
    }
  }
  const std::vector<float> rows = random_floats(kStrips * lanes_ * kWidth);
  std::vector<float> out(kPadded * kWidth, 0.25F);
  math_.add_outer(kKeys, weights.data(), kStrips, stride, begin, end,
                  row_pointers<const float*>(rows, kStrips * lanes_, kWidth).data(), kWidth,
                  row_pointers<float*>(out, kPadded, kWidth).data());
  for (int64_t x = 0; x < kKeys; ++x) {
    for (int64_t d = 0; d < kWidth; ++d) {
      double expected = 0.25;
      for (int64_t s = 0; s < kStrips; ++s) {
        for (int64_t i = 0; x >= begin[s] && x < end[s] && i < lanes_; ++i) {
          expected += static_cast<double>(weights[s * stride + x * lanes_ + i]) * rows[(s * lanes_ + i) * kWidth + d];
        }
      }
      ASSERT_NEAR(out[x * kWidth + d], expected, 1e-5) << "key " << x << " column " << d;
    }
  }
}

TEST_P(Strips, WidenKeepsEveryBit) {
  std::vector<uint16_t> bits(65536);
  for (size_t x = 0; x < bits.size(); ++x) bits[x] = static_cast<uint16_t>(x);
  std::vector<float> values(bits.size());
  math_.widen(bits.data(), static_cast<int64_t>(bits.size()), values.data());
  EXPECT_EQ(values[0x3F80], 1.0F);
  EXPECT_EQ(values[0xC000], -2.0F);
  EXPECT_TRUE(std::isnan(values[0x7FC0]));
  EXPECT_EQ(values[0xFF80], -std::numeric_limits<float>::infinity());
}

TEST(StripMathChoice, FollowsTheEnvironment) {
  const auto name_under = [](const char* value) {
    setenv("FOCUS_CPU", value, 1);
    const std::string name = choose_strip_math().name;
    unsetenv("FOCUS_CPU");
    return name;
  };
  for (const StripMath* math : available_strip_math()) EXPECT_EQ(name_under(math->name), math->name);
  EXPECT_EQ(name_under(""), available_strip_math().front()->name);
  EXPECT_EQ(available_strip_math().back()->name, std::string("baseline"));
  EXPECT_THAT([&] { name_under("sse9"); },
              ThrowsMessage<UsageError>(HasSubstr("FOCUS_CPU=sse9: no such instruction set")));
  unsetenv("FOCUS_CPU");
  if (available_strip_math().front()->name != std::string("avx512")) {
    EXPECT_THAT([&] { name_under("avx512"); }, ThrowsMessage<Error>(HasSubstr("this machine cannot run it")));
    unsetenv("FOCUS_CPU");
  }
}

}  // namespace
}  // namespace focus::kernels::cpu
