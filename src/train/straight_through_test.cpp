#include "train/straight_through.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "attention/testing.h"
#include "base/error.h"

namespace focus {
namespace {

at::Tensor per_head(const at::Tensor& x, int64_t heads) {
  return x.repeat_interleave(heads / x.size(1), 1);
}

struct Spec {
  int64_t batch, heads, kv_heads, sets, tokens, probes;
  int64_t window, layer_window, document;
  double softcap;
};

constexpr int64_t kLists = 6, kSinks = 3;

std::vector<Spec> specs() {
  return {{1, 2, 2, 2, 1, 1, 2, 0, 0, 0},      {2, 4, 2, 2, 130, 2, 8, 0, 0, 0},   {1, 6, 2, 1, 300, 3, 0, 0, 0, 0},
          {2, 4, 2, 1, 150, 1, 5, 40, 0, 1.5}, {1, 3, 3, 3, 257, 4, 30, 90, 0, 0}, {2, 4, 2, 2, 150, 2, 4, 0, 40, 0}};
}

/// Inputs in float64: a case of the op with list 0 for the sinks, and soft choices of the other lists.
struct Inputs {
  testing::Case example;
  at::Tensor probed, membership, gradient;
};

Inputs make_inputs(const Spec& spec, uint64_t seed) {
  testing::CaseSpec shape;
  shape.batch = spec.batch;
  shape.heads = spec.heads;
  shape.kv_heads = spec.kv_heads;
  shape.tq = shape.tk = spec.tokens;
  shape.list_sets = spec.sets;
  shape.lists = kLists;
  shape.probes = spec.probes;
  shape.window = spec.window;
  shape.layer_window = spec.layer_window;
  shape.softcap = spec.softcap;
  shape.document = spec.document;
  shape.dtype = at::kDouble;
  shape.seed = seed;
  Inputs inputs{.example = testing::random_case(shape), .probed = {}, .membership = {}, .gradient = {}};
  at::manual_seed(seed + 1);
  const at::TensorOptions wide(at::kDouble);
  inputs.probed = at::rand({spec.batch, spec.sets, spec.tokens, kLists}, wide);
  inputs.membership = at::randn({spec.batch, spec.sets, spec.tokens, kLists}, wide).softmax(-1);
  inputs.gradient = at::randn(inputs.example.q.sizes(), wide);
  // Scores that leave kept ones far behind, so that some ratios are clamped.
  inputs.example.q.mul_(2);
  return inputs;
}

/// Gradients of p and m by the definition, with every [T, T] tensor there.
std::vector<at::Tensor> plain(const Inputs& inputs, double* clamped) {
  const auto& [q, k, v, params] = inputs.example;
  const int64_t heads = q.size(1), tokens = q.size(2), sets = inputs.probed.size(1);
  at::Tensor s = params.scale * at::matmul(q, per_head(k, heads).transpose(-1, -2));
  if (params.softcap > 0) s = params.softcap * at::tanh(s / params.softcap);
  const at::Tensor hard = per_head(allowed_mask(q.size(0), tokens, tokens, params), heads).to(at::kDouble);
  const at::Tensor w = hard.expand_as(s).clone().set_requires_grad(true);
  const at::Tensor e = (s - s.amax(-1, true)).exp();
  const at::Tensor z = (hard * e).sum(-1, true).clamp_min(1e-300);
  const at::Tensor weighted = w * e;
  const at::Tensor out = at::matmul(weighted / weighted.sum(-1, true).clamp_min(1e-300), per_head(v, heads));
  const at::Tensor ratio = e / z;
  at::Tensor dw = torch::autograd::grad({out}, {w}, {inputs.gradient})[0] * (4 / ratio).clamp_max(1);
  const at::Tensor i = at::arange(tokens, at::kLong).unsqueeze(1), j = at::arange(tokens, at::kLong);
  at::Tensor start = at::zeros({1, 1, 1, 1}, at::kLong);
  if (params.document_start) start = params.document_start->to(at::kLong).view({q.size(0), 1, -1, 1});
  at::Tensor far = (i - j > params.window).logical_and(j >= start + kSinks);
  if (params.layer_window > 0) far = far.logical_and(i - j < params.layer_window);
  dw = dw * far;
  *clamped = (ratio * far).max().item<double>();
  dw = dw.view({q.size(0), sets, heads / sets, tokens, tokens}).sum(2);
  return {at::matmul(dw, inputs.membership), at::matmul(dw.transpose(-1, -2), inputs.probed)};
}

/// Output and gradients of p, m, q, k and v.
std::vector<at::Tensor> ours(const Inputs& inputs, at::ScalarType type, bool through) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : {inputs.probed, inputs.membership, inputs.example.q, inputs.example.k, inputs.example.v}) {
    leaves.push_back(x.to(type).clone().set_requires_grad(true));
  }
  const AttentionParams& params = inputs.example.params;
  const auto [plain_out, lse] = type == at::kDouble ? reference_attention(leaves[2], leaves[3], leaves[4], params)
                                                    : attention(leaves[2], leaves[3], leaves[4], params);
  at::Tensor out = plain_out;
  if (through) {
    out = straight_through(out, lse, leaves[2], leaves[3], leaves[4], leaves[0], leaves[1], params, kSinks);
  }
  std::vector<at::Tensor> results =
      torch::autograd::grad({out}, leaves, {inputs.gradient.to(type)}, true, false, /*allow_unused=*/true);
  results.push_back(out.detach());
  return results;
}

TEST(StraightThrough, EqualsTheDefinitionAndLeavesTheRestAlone) {
  double most = 0;
  uint64_t seed = 20;
  for (const Spec& spec : specs()) {
    const Inputs inputs = make_inputs(spec, seed += 10);
    double ratio = 0;
    const std::vector<at::Tensor> expected = plain(inputs, &ratio);
    most = std::max(most, ratio);
    const auto wide = ours(inputs, at::kDouble, true), single = ours(inputs, at::kFloat, true);
    const std::string where = fmt::format("{} tokens, {} sets", spec.tokens, spec.sets);
    for (size_t x = 0; x < 2; ++x) {
      EXPECT_TRUE(testing::close(wide[x], expected[x], 1e-11, 1e-10)) << where;
      const double scale = std::max(1e-6, expected[x].abs().max().item<double>());
      EXPECT_TRUE(testing::close(single[x].to(at::kDouble), expected[x], 2e-5 * scale)) << where;
      EXPECT_EQ(expected[x].abs().max().item<double>() > 0, spec.tokens > 1) << where;
    }
    // Output and the gradients of q, k and v are those of the sparse op, bit for bit.
    const auto op = ours(inputs, at::kFloat, false);
    for (size_t x = 2; x < op.size(); ++x) EXPECT_TRUE(at::equal(single[x], op[x])) << where << ", " << x;
  }
  EXPECT_GT(most, 8) << "no ratio was clamped";
}

TEST(StraightThrough, FrozenQueriesKeysAndValuesNeedNoGradient) {
  const Inputs inputs = make_inputs(specs()[1], 7);
  const auto& [q, k, v, params] = inputs.example;
  const at::Tensor p = inputs.probed.clone().set_requires_grad(true);
  const auto [out, lse] = reference_attention(q, k, v, params);
  const at::Tensor through = straight_through(out, lse, q, k, v, p, inputs.membership, params, kSinks);
  through.backward(inputs.gradient);
  EXPECT_TRUE(testing::close(p.grad(), ours(inputs, at::kDouble, true)[0], 1e-12));
  EXPECT_FALSE(q.grad().defined());
}

TEST(StraightThrough, ShapesThatDoNotFitAreRefused) {
  const at::Tensor q = at::zeros({1, 4, 6, 8}), k = at::zeros({1, 2, 6, 8}), lse = at::zeros({1, 4, 6});
  const at::Tensor p = at::zeros({1, 2, 6, 3});
  EXPECT_NO_THROW(straight_through(q, lse, q, k, k, p, p, {}, 0));
  EXPECT_THROW(straight_through(q, lse, q, k, k, p, at::zeros({1, 2, 6, 4}), {}, 0), Error);
  EXPECT_THROW(straight_through(q, lse, q, k, k, at::zeros({1, 4, 6, 3}), at::zeros({1, 4, 6, 3}), {}, 0), Error);
  EXPECT_THROW(straight_through(q, at::zeros({1, 2, 6}), q, k, k, p, p, {}, 0), Error);
  EXPECT_THROW(straight_through(q, lse, q, at::zeros({1, 2, 5, 8}), k, p, p, {}, 0), Error);
}

TEST(SoftProbes, LieAroundTheLastProbedList) {
  at::manual_seed(3);
  const at::Tensor scores = at::randn({2, 3, 20, 5});
  const std::vector<int64_t> probes = {1, 3, 5};
  const at::Tensor soft = soft_probes(scores, probes, 3.0);
  const at::Tensor rank = scores.argsort(-1, true).argsort(-1, false);
  for (int64_t set = 0; set < 3; ++set) {
    const at::Tensor inside = rank.select(1, set) < probes[static_cast<size_t>(set)];
    EXPECT_TRUE(at::equal(soft.select(1, set) > 0.5, inside)) << set;
  }
  const at::Tensor best = std::get<0>(scores[0][1][7].sort(-1, true));
  const double theta = (best[2].item<double>() + best[3].item<double>()) / 2;
  EXPECT_TRUE(testing::close(soft[0][1][7], at::sigmoid((scores[0][1][7] - theta) * 3.0), 1e-6));
  EXPECT_THROW(soft_probes(scores, {1, 3}, 3.0), Error);
  EXPECT_THROW(soft_probes(scores, {1, 3, 6}, 3.0), Error);
}

}  // namespace
}  // namespace focus
