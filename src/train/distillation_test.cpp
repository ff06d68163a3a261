#include "train/distillation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "attention/op.h"
#include "base/error.h"
#include "train/index_init.h"
#include "train/synthetic_layer_test.h"

namespace focus {
namespace {

TEST(SampledTeacher, AllFarPairsKeptIsNoError) {
  const DistillationLayer layer = synthetic_layer(40, 1);
  const SampledTeacher teacher(layer, at::arange(10, 40), 4, 2);
  EXPECT_LT(teacher.output_error(at::ones({2, 30, 40})).item<double>(), 1e-12);
}

TEST(SampledTeacher, HardMaskGivesTheErrorOfTheAttentionOp) {
  const int64_t length = 48, window = 5;
  const DistillationLayer layer = synthetic_layer(length, 2);
  const at::Tensor rows = at::arange(8, length);
  const SampledTeacher teacher(layer, rows, window, 0);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const at::Tensor key_group = at::randint(0, 4, {1, 2, length}, generator, at::kInt);
  const at::Tensor probes = at::stack({at::zeros({1, 2, length}, at::kInt), at::full({1, 2, length}, 2, at::kInt)}, -1);
  AttentionParams dense;
  dense.scale = layer.scale;
  AttentionParams lists = dense;
  lists.key_group = key_group;
  lists.probes = probes;
  lists.window = window;
  const auto run = [&](const AttentionParams& p) {
    const at::Tensor out = std::get<0>(
        reference_attention(layer.q.unsqueeze(0), layer.k.unsqueeze(0), layer.v.unsqueeze(0), p))[0];  // [Hq, T, D]
    return at::matmul(out.transpose(0, 1).reshape({length, -1}), layer.output_weight.t()).index_select(0, rows);
  };
  const at::Tensor full = run(dense), sparse = run(lists);
  const double expected = ((sparse - full).square().sum() / full.square().sum()).item<double>();
  const at::Tensor allowed = (key_group == 0) | (key_group == 2);  // [1, 2, T]
  const at::Tensor weights = allowed[0].unsqueeze(1).expand({2, rows.size(0), length}).to(at::kFloat);
  EXPECT_GT(expected, 1e-3);
  EXPECT_NEAR(teacher.output_error(weights).item<double>(), expected, 1e-5 * expected + 1e-7);
}

TEST(SampledTeacher, HeadErrorsAreThoseOfEachHeadAlone) {
  const DistillationLayer layer = synthetic_layer(40, 6);
  const at::Tensor rows = at::arange(12, 40);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const SampledTeacher teacher(layer, rows, 4, 1);
  const at::Tensor dropped = (at::rand({2, 28, 40}, generator) < 0.6) & teacher.far();
  const at::Tensor errors = teacher.head_errors(dropped);
  ASSERT_EQ(errors.sizes(), at::IntArrayRef{4});
  for (int64_t head = 0; head < 4; ++head) {
    // With every other head's columns of the output projection at zero the block's output is this head's part.
    DistillationLayer alone = layer;
    alone.output_weight = at::zeros_like(layer.output_weight);
    alone.output_weight.narrow(1, head * 8, 8).copy_(layer.output_weight.narrow(1, head * 8, 8));
    const double expected = SampledTeacher(alone, rows, 4, 1).output_error(1 - dropped.to(at::kFloat)).item<double>();
    EXPECT_GT(expected, 1e-4);
    EXPECT_NEAR(errors[head].item<double>(), expected, 1e-4 * expected);
  }
}

TEST(SampledTeacher, GradientEqualsFiniteDifferences) {
  const DistillationLayer layer = synthetic_layer(32, 4);
  const SampledTeacher teacher(layer, at::arange(20, 24), 3, 1);
  at::Tensor weights = at::full({2, 4, 32}, 0.6F).set_requires_grad(true);
  teacher.output_error(weights).backward();
  const at::Tensor gradient = weights.grad();
  for (const auto& [head, row, key] : std::vector<std::tuple<int, int, int>>{{0, 0, 5}, {1, 2, 9}, {0, 3, 16}}) {
    const float step = 1e-2F;
    at::Tensor up = weights.detach().clone(), down = up.clone();
    up[head][row][key] += step;
    down[head][row][key] -= step;
    const double slope =
        (teacher.output_error(up).item<double>() - teacher.output_error(down).item<double>()) / (2.0 * step);
    EXPECT_NEAR(gradient[head][row][key].item<double>(), slope, 2e-2 * std::abs(slope) + 1e-6);
  }
  // Near pairs, sinks and later keys take no gradient.
  EXPECT_EQ(gradient[0][0][0].item<float>(), 0);
  EXPECT_EQ(gradient[0][0][18].item<float>(), 0);
  EXPECT_EQ(gradient[0][0][25].item<float>(), 0);
}

TEST(SampledTeacher, ALayersOwnWindowBoundsTheFarPairs) {
  DistillationLayer layer = synthetic_layer(32, 5);
  layer.layer_window = 10;
  const SampledTeacher teacher(layer, at::tensor({20}, at::kLong), 3, 0);
  EXPECT_EQ(teacher.far().sum().item<int64_t>(), 6);  // Distances 4 to 9.
}

TEST(SampledTeacher, DocumentsHaveTheirOwnSinksAndDoNotMix) {
  DistillationLayer layer = synthetic_layer(32, 5);
  layer.document_start = at::where(at::arange(32) < 12, 0, 12);
  const SampledTeacher teacher(layer, at::tensor({20}, at::kLong), 3, 2);
  EXPECT_EQ(teacher.far().sum().item<int64_t>(), 3);  // Positions 14, 15 and 16.
  EXPECT_EQ(teacher.far()[0].nonzero().min().item<int64_t>(), 14);
}

TEST(FarThreshold, LetsTheWantedShareThrough) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const at::Tensor scores = at::randn({2, 3, 40}, generator);
  const at::Tensor far = at::arange(40).unsqueeze(0) < at::tensor({8, 20, 40}, at::kLong).unsqueeze(1);
  const at::Tensor kept = (scores >= far_threshold(scores, far, 0.125)) & far;
  for (int head = 0; head < 2; ++head) {
    EXPECT_EQ(kept[head][0].sum().item<int64_t>(), 1);
    EXPECT_EQ(kept[head][1].sum().item<int64_t>(), 3);
    EXPECT_EQ(kept[head][2].sum().item<int64_t>(), 5);
  }
}

TEST(SampleRows, DistinctSortedAndInside) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const at::Tensor rows = sample_rows(10, 100, 50, generator);
  EXPECT_EQ(rows.size(0), 50);
  EXPECT_GE(rows[0].item<int64_t>(), 10);
  EXPECT_LT(rows[49].item<int64_t>(), 100);
  EXPECT_TRUE((rows.diff() > 0).all().item<bool>());
  EXPECT_EQ(sample_rows(10, 20, 50, generator).size(0), 10);
  EXPECT_THROW(sample_rows(10, 10, 1, generator), Error);
}

TEST(SvdIndex, FullRankReproducesTheProductOfTheProjections) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const int64_t d = 24, head_dim = 4;
  const at::Tensor query = at::randn({2 * 2 * head_dim, d}, generator), key = at::randn({2 * head_dim, d}, generator);
  const auto [wq, wk] = svd_index(query, key, 2, head_dim, 2, head_dim, generator);
  for (int64_t head = 0; head < 2; ++head) {
    const at::Tensor product =
        at::matmul(query.view({2, 2, head_dim, d})[head].mean(0).t(), key.view({2, head_dim, d})[head]);  // [d, d]
    const at::Tensor ours = at::matmul(wq[head].t(), wk[head]);
    const at::Tensor factor = (ours * product).sum() / product.square().sum();
    EXPECT_LT((ours / factor - product).abs().max().item<double>(), 1e-4);
  }
  const auto [shared_q, shared_k] = svd_index(query, key, 2, head_dim, 1, 12, generator);
  EXPECT_EQ(shared_q.sizes(), (at::IntArrayRef{1, 12, d}));
  EXPECT_TRUE(shared_k.isfinite().all().item<bool>());
}

TEST(Whitening, TurnsHiddenStatesIntoUncorrelatedOnes) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  // One direction is ten times as strong as the others.
  const at::Tensor strong = at::ones({6}).index_fill(0, at::tensor({2}, at::kLong), 10);
  const at::Tensor hidden = at::randn({4000, 6}, generator) * strong;
  const Whitening white = whitening(at::matmul(hidden.t(), hidden) / 4000);
  EXPECT_LT((at::matmul(white.root, white.inverse_root) - at::eye(6)).abs().max().item<double>(), 1e-4);
  const at::Tensor h = at::matmul(hidden, white.inverse_root);
  const at::Tensor variance = h.square().mean(0);
  EXPECT_GT(variance.min().item<double>(), 0.6);
  EXPECT_LT(variance.max().item<double>(), 1.0);
}

}  // namespace
}  // namespace focus
