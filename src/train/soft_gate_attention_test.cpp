#include "train/soft_gate_attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "attention/kv_cache.h"
#include "attention/methods/full.h"
#include "attention/testing.h"
#include "base/error.h"

namespace focus {
namespace {

at::Tensor per_head(const at::Tensor& x, int64_t heads) {
  return x.repeat_interleave(heads / x.size(1), 1);
}

/// The formula with a dense mask.
at::Tensor dense(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& g,
                 const SoftGateParams& params) {
  const int64_t heads = q.size(1), tokens = q.size(2);
  const at::Tensor i = at::arange(tokens, at::kLong).unsqueeze(1), j = at::arange(tokens, at::kLong);
  const at::Tensor start = params.document_start ? params.document_start->to(at::kLong).view({q.size(0), 1, -1, 1})
                                                 : at::zeros({1, 1, 1, 1}, at::kLong);
  const at::Tensor local = (i - j <= params.window).logical_or(j < start + params.sinks).to(q.scalar_type());
  at::Tensor allowed = (j <= i).logical_and(j >= start);
  if (params.layer_window > 0) allowed = allowed.logical_and(i - j < params.layer_window);
  const at::Tensor some = allowed.any(-1, true);
  const at::Tensor affinity = per_head(at::matmul(g, g.transpose(-1, -2)), heads);
  at::Tensor s = params.scale * at::matmul(q, per_head(k, heads).transpose(-1, -2)) *
                 (local + (1 - local) * at::sigmoid(params.sharpness * affinity));
  if (params.softcap > 0) s = params.softcap * at::tanh(s / params.softcap);
  s = s.masked_fill(allowed.logical_not(), -std::numeric_limits<double>::infinity()).masked_fill(~some, 0.0);
  return at::matmul(s.softmax(-1).masked_fill(~some, 0.0), per_head(v, heads));
}

struct Spec {
  int64_t batch, heads, kv_heads, sets, tokens;
  SoftGateParams params;
};

std::vector<Spec> specs() {
  const SoftGateParams plain{
      .window = 8, .sinks = 2, .sharpness = 5, .scale = 0.3, .softcap = 0, .layer_window = 0, .document_start = {}};
  SoftGateParams bounded = plain;
  bounded.layer_window = 40;
  bounded.softcap = 1.5;
  SoftGateParams packed = plain;
  // Two documents in the first row; in the second, padding before a document.
  packed.document_start = at::zeros({2, 150}, at::kInt);
  packed.document_start->slice(1, 60).select(0, 0).fill_(60);
  packed.document_start->select(0, 1).fill_(20);
  return {{1, 2, 2, 2, 1, plain},     {2, 4, 2, 2, 129, plain},   {1, 6, 2, 1, 300, plain},
          {2, 4, 2, 1, 150, bounded}, {1, 3, 3, 3, 257, bounded}, {2, 4, 2, 2, 150, packed}};
}

/// Output and the four gradients.
template <typename Function>
std::vector<at::Tensor> run(Function function, const std::vector<at::Tensor>& inputs, at::ScalarType type,
                            const at::Tensor& out_gradient) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : inputs) leaves.push_back(x.to(type).clone().set_requires_grad(true));
  const at::Tensor out = function(leaves[0], leaves[1], leaves[2], leaves[3]);
  std::vector<at::Tensor> results = torch::autograd::grad({out}, leaves, {out_gradient.to(out.scalar_type())});
  results.insert(results.begin(), out.detach());
  return results;
}

TEST(SoftGateAttention, EqualsTheDenseFormulaForwardAndBackward) {
  const char* const names[] = {"out", "dq", "dk", "dv", "dg"};
  for (const Spec& spec : specs()) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
    const auto randn = [&](int64_t heads, int64_t width) {
      return at::randn({spec.batch, heads, spec.tokens, width}, generator, at::TensorOptions(at::kDouble));
    };
    const std::vector<at::Tensor> inputs = {randn(spec.heads, 8), randn(spec.kv_heads, 8), randn(spec.kv_heads, 8),
                                            randn(spec.sets, 5).softmax(-1)};
    const at::Tensor gradient = randn(spec.heads, 8);
    const auto ours = [&](const auto& q, const auto& k, const auto& v, const auto& g) {
      return soft_gate_attention(q, k, v, g, spec.params);
    };
    const auto plain = [&](const auto& q, const auto& k, const auto& v, const auto& g) {
      return dense(q, k, v, g, spec.params);
    };
    const auto exact = run(plain, inputs, at::kDouble, gradient);
    const auto same = run(plain, inputs, at::kFloat, gradient);
    const auto wide = run(ours, inputs, at::kDouble, gradient);
    const auto single = run(ours, inputs, at::kFloat, gradient);
    for (size_t i = 0; i < exact.size(); ++i) {
      const std::string where = fmt::format("{} of {} tokens, {} sets", names[i], spec.tokens, spec.sets);
      EXPECT_TRUE(testing::close(wide[i], exact[i], 1e-12, 1e-12)) << where;
      EXPECT_TRUE(testing::as_exact_as(single[i], same[i], exact[i])) << where;
    }
  }
}

TEST(SoftGateAttention, HalfPrecisionIsComputedInFloat32) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(8);
  const auto randn = [&] { return at::randn({1, 2, 140, 8}, generator).to(at::kBFloat16); };
  const at::Tensor q = randn(), k = randn(), v = randn();
  const at::Tensor g = at::rand({1, 2, 140, 4}, generator);
  const SoftGateParams params{
      .window = 4, .sinks = 0, .sharpness = 5, .scale = 0.3, .softcap = 0, .layer_window = 0, .document_start = {}};
  const at::Tensor out = soft_gate_attention(q, k, v, g, params);
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  const at::Tensor wide = soft_gate_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), g, params);
  EXPECT_TRUE(at::equal(out, wide.to(at::kBFloat16)));
}

TEST(SoftGateAttention, OnlyWantedGradientsAreComputed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(9);
  const at::Tensor x = at::randn({1, 2, 40, 8}, generator);
  const at::Tensor g = at::rand({1, 1, 40, 4}, generator).set_requires_grad(true);
  const SoftGateParams params{
      .window = 4, .sinks = 0, .sharpness = 5, .scale = 0.3, .softcap = 0, .layer_window = 0, .document_start = {}};
  soft_gate_attention(x, x, x, g, params).sum().backward();
  EXPECT_GT(g.grad().abs().sum().item<double>(), 0);
  EXPECT_FALSE(x.grad().defined());
}

TEST(SoftGateAttention, ShapesThatDoNotFitAreRefused) {
  const at::Tensor x = at::zeros({1, 4, 6, 8}), two = at::zeros({1, 2, 6, 8});
  EXPECT_THROW(soft_gate_attention(x, two, two, at::zeros({1, 4, 6, 3}), {}), Error);
  EXPECT_THROW(soft_gate_attention(x, two, two, at::zeros({1, 2, 5, 3}), {}), Error);
  EXPECT_THROW(soft_gate_attention(x, two, x, at::zeros({1, 2, 6, 3}), {}), Error);
}

TEST(SoftGateAttention, LayersWithoutARouterAttendDensely) {
  const std::map<int64_t, LayerRouter> none;
  SoftGateAttention method(RoutingConfig::symmetric_defaults(), 5, none);
  AttentionInput input;
  input.q = at::randn({1, 4, 20, 8});
  input.k = at::randn({1, 2, 20, 8});
  input.v = at::randn({1, 2, 20, 8});
  input.hidden = at::randn({1, 20, 16});
  input.softcap = 3;
  input.layer_window = 7;
  FullAttention full;
  EXPECT_TRUE(at::allclose(method.attend(input), full.attend(input), 1e-5, 1e-6));
  EXPECT_EQ(method.pairs().kept, 2 * full.pairs().kept);
}

TEST(SoftGateAttention, TakesNoCache) {
  RoutingConfig config = RoutingConfig::symmetric_defaults();
  const std::map<int64_t, LayerRouter> none;
  SoftGateAttention method(config, 5, none);
  EXPECT_FALSE(method.is_causal());
  EXPECT_THROW(method.make_cache(0, 1, 8), Error);
  KvCache cache(1, 8);
  AttentionInput cached;
  cached.cache = &cache;
  EXPECT_THROW(method.attend(cached), Error);
  config.symmetric = false;
  EXPECT_THROW(SoftGateAttention(config, 5, none), Error);
}

}  // namespace
}  // namespace focus
