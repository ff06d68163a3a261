#include "attention/decode.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "attention/dense.h"
#include "attention/testing.h"

namespace focus {
namespace {

using focus::testing::all_strip_math;
using focus::testing::as_exact_as;
using focus::testing::close;

struct DecodeCase {
  int64_t batch, heads, kv_heads, length, dim, sets;
  double softcap;
};

// Every key with the chance `share` among the scattered ones, and the last `near` as a run.
std::vector<KeyChoice> random_choices(int64_t count, int64_t length, double share, int64_t near) {
  std::mt19937 generator(3);
  std::bernoulli_distribution taken(share);
  std::vector<KeyChoice> chosen(static_cast<size_t>(count));
  for (KeyChoice& choice : chosen) {
    choice.begin = std::max<int64_t>(0, length - near);
    choice.end = length;
    for (int64_t j = 0; j < choice.begin; ++j) {
      if (taken(generator)) choice.scattered.push_back(static_cast<int32_t>(j));
    }
    std::shuffle(choice.scattered.begin(), choice.scattered.end(), generator);
  }
  return chosen;
}

// The chosen keys alone through plain ATen.
at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const std::vector<KeyChoice>& chosen, int64_t sets, double scale, double softcap) {
  const int64_t group = q.size(1) / k.size(1);
  at::Tensor out = at::zeros({q.size(0), q.size(1), 1, v.size(3)}, q.options());
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t h = 0; h < q.size(1); ++h) {
      const KeyChoice& choice = chosen[static_cast<size_t>(b * sets + (sets == 1 ? 0 : h / group))];
      std::vector<int64_t> positions(choice.scattered.begin(), choice.scattered.end());
      for (int64_t j = choice.begin; j < choice.end; ++j) positions.push_back(j);
      if (positions.empty()) continue;
      const at::Tensor rows = at::tensor(positions, at::kLong);
      at::Tensor scores = k[b][h / group].index_select(0, rows).matmul(q[b][h][0]) * scale;
      if (softcap > 0) scores = softcap * at::tanh(scores / softcap);
      out[b][h][0].copy_(at::softmax(scores, 0).matmul(v[b][h / group].index_select(0, rows)));
    }
  }
  return out;
}

class Decode : public ::testing::TestWithParam<std::tuple<DecodeCase, at::ScalarType>> {};

INSTANTIATE_TEST_SUITE_P(
    Shapes, Decode,
    ::testing::Combine(::testing::Values(DecodeCase{1, 1, 1, 1, 8, 1, 0.0}, DecodeCase{2, 6, 2, 239, 64, 2, 0.0},
                                         DecodeCase{1, 7, 1, 1500, 33, 1, 3.0}, DecodeCase{1, 3, 3, 9001, 128, 1, 0.0},
                                         DecodeCase{1, 5, 1, 600, 1, 1, 0.0}),
                       ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf)));

TEST_P(Decode, EqualsPlainAttentionOverTheChosenKeys) {
  const auto& [shape, dtype] = GetParam();
  const at::Tensor q = at::randn({shape.batch, shape.heads, 1, shape.dim}).to(dtype);
  const at::Tensor k = at::randn({shape.batch, shape.kv_heads, shape.length, shape.dim}).to(dtype);
  const at::Tensor v = at::randn({shape.batch, shape.kv_heads, shape.length, shape.dim}).to(dtype);
  const double scale = 1.0 / std::sqrt(static_cast<double>(shape.dim));
  for (const auto& [share, near] : {std::pair{0.0, int64_t{1} << 20}, std::pair{0.3, int64_t{9}}}) {
    const auto chosen = random_choices(shape.batch * shape.sets, shape.length, share, near);
    const at::Tensor exact =
        reference(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), chosen, shape.sets, scale, shape.softcap);
    const at::Tensor same = reference(q, k, v, chosen, shape.sets, scale, shape.softcap);
    for (const kernels::cpu::StripMath* math : all_strip_math()) {
      kernels::cpu::override_strip_math(math);
      const at::Tensor out = decode_attention(q, k, v, chosen, shape.sets, scale, shape.softcap);
      kernels::cpu::override_strip_math(nullptr);
      EXPECT_TRUE(as_exact_as(out, same, exact, 1e-6)) << math->name << ", share " << share;
    }
  }
}

TEST(DecodeAttention, NegativeAndZeroScale) {
  const at::Tensor q = at::randn({1, 2, 1, 16});
  const at::Tensor k = at::randn({1, 1, 50, 16});
  const at::Tensor v = at::randn({1, 1, 50, 16});
  const std::vector<KeyChoice> all = {{{}, 0, 50}};
  for (const double scale : {-0.7, 0.0}) {
    EXPECT_TRUE(close(decode_attention(q, k, v, all, 1, scale, 0.0), reference(q, k, v, all, 1, scale, 0.0), 1e-5));
  }
}

TEST(DecodeAttention, WithoutAnyKeyIsZero) {
  const at::Tensor out = decode_attention(at::randn({1, 2, 1, 8}), at::randn({1, 2, 5, 8}), at::randn({1, 2, 5, 8}),
                                          {KeyChoice{}, KeyChoice{{3}, 0, 0}}, 2, 1.0, 0.0);
  EXPECT_TRUE(out.select(1, 0).eq(0).all().item<bool>());
  EXPECT_FALSE(out.select(1, 1).eq(0).all().item<bool>());
}

TEST(DecodeAttention, BitsDoNotDependOnThreads) {
  const at::Tensor q = at::randn({1, 2, 1, 64});
  const at::Tensor k = at::randn({1, 1, 20000, 64});
  const at::Tensor v = at::randn({1, 1, 20000, 64});
  const std::vector<KeyChoice> chosen = random_choices(1, 20000, 0.6, 100);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = decode_attention(q, k, v, chosen, 1, 0.125, 0.0);
  at::set_num_threads(3);
  const at::Tensor three = decode_attention(q, k, v, chosen, 1, 0.125, 0.0);
  at::set_num_threads(threads);
  EXPECT_TRUE(close(three, one, 0.0));
}

TEST(DenseAttention, OneTokenBehindACache) {
  const at::Tensor q = at::randn({2, 6, 1, 16});
  const at::Tensor k = at::randn({2, 3, 700, 16});
  const at::Tensor v = at::randn({2, 3, 700, 16});
  for (const int64_t layer_window : {0, 1, 300, 900}) {
    AttentionParams params;
    params.scale = 0.25;
    params.layer_window = layer_window;
    params.softcap = layer_window == 300 ? 2.0 : 0.0;
    EXPECT_TRUE(close(dense_attention(q, k, v, params), std::get<0>(reference_attention(q, k, v, params)), 1e-5));
  }
}

}  // namespace
}  // namespace focus
