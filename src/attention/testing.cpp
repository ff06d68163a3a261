#include "attention/testing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "kernels/cpu/isa/strip_math.h"

namespace focus::testing {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

namespace {

std::string cell_name(const at::Tensor& tensor, int64_t flat) {
  std::vector<int64_t> index(tensor.dim());
  for (int64_t d = tensor.dim() - 1; d >= 0; --d) {
    index[d] = flat % tensor.size(d);
    flat /= tensor.size(d);
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

// |actual - expected| in float64, infinite where just one of them is NaN or they are different infinities.
at::Tensor distance(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor a = actual.detach().to(at::kDouble);
  const at::Tensor e = expected.detach().to(at::kDouble);
  const at::Tensor same = (a == e) | (a.isnan() & e.isnan());
  const at::Tensor difference = (a - e).abs().masked_fill(same, 0.0);
  return difference.masked_fill(difference.isnan(), std::numeric_limits<double>::infinity());
}

AssertionResult within(const at::Tensor& actual, const at::Tensor& expected, const at::Tensor& tolerance) {
  if (actual.sizes() != expected.sizes()) {
    return AssertionFailure() << "shape " << fmt::format("[{}]", fmt::join(actual.sizes(), ", ")) << ", expected "
                              << fmt::format("[{}]", fmt::join(expected.sizes(), ", "));
  }
  if (actual.numel() == 0) return AssertionSuccess();
  const at::Tensor difference = distance(actual, expected);
  const at::Tensor excess = (difference - tolerance).reshape(-1);
  const int64_t worst = excess.argmax().item<int64_t>();
  const double over = excess[worst].item<double>();
  if (over <= 0) return AssertionSuccess();
  const at::Tensor a = actual.detach().reshape(-1);
  const at::Tensor e = expected.detach().reshape(-1);
  return AssertionFailure() << fmt::format(
             "worst cell {}: actual {:.9g}, expected {:.9g}, difference {:.3g}, tolerance {:.3g}; {} of {} cells off",
             cell_name(actual, worst), a[worst].item<double>(), e[worst].item<double>(),
             difference.reshape(-1)[worst].item<double>(),
             tolerance.expand_as(difference).reshape(-1)[worst].item<double>(), (excess > 0).sum().item<int64_t>(),
             actual.numel());
}

double epsilon(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? std::ldexp(1.0, -8)
         : dtype == at::kHalf   ? std::ldexp(1.0, -11)
                                : std::ldexp(1.0, -24);
}

// q, k, v of shape [batch, heads, length, dim], contiguous or as a view that is neither contiguous nor dense.
at::Tensor random_tensor(int64_t batch, int64_t heads, int64_t length, const CaseSpec& spec, at::Generator& generator) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  if (!spec.strided) return at::randn({batch, heads, length, spec.dim}, generator, options).to(spec.dtype);
  const at::Tensor wide = at::randn({batch, length, spec.dim * 2, heads + 1}, generator, options).to(spec.dtype);
  return wide.slice(2, 0, spec.dim * 2, 2).slice(3, 1).permute({0, 3, 1, 2});
}

}  // namespace

AssertionResult close(const at::Tensor& actual, const at::Tensor& expected, double atol, double rtol) {
  const at::Tensor size = expected.detach().to(at::kDouble).abs().nan_to_num(0.0, 0.0, 0.0);
  return within(actual, expected, size * rtol + atol);
}

AssertionResult as_exact_as(const at::Tensor& actual, const at::Tensor& same_precision, const at::Tensor& exact,
                            double atol) {
  if (exact.numel() == 0) return within(actual, exact, at::zeros({}, at::kDouble));
  const at::Tensor finite = distance(same_precision, exact).nan_to_num(0.0, 0.0, 0.0);
  const at::Tensor size = exact.detach().abs().nan_to_num(0.0, 0.0, 0.0);
  // 4 roundings of the largest value for sums in another order.
  return within(actual, exact, 2.0 * finite.max() + 4.0 * epsilon(actual.scalar_type()) * size.max() + atol);
}

std::string CaseSpec::describe() const {
  return fmt::format(
      "batch {} heads {}/{} tq {} tk {} dim {} list sets {} lists {} probes {} window {} layer window {} softcap {} "
      "document {} strided {} dtype {} seed {}",
      batch, heads, kv_heads, tq, tk, dim, list_sets, lists, probes, window, layer_window, softcap, document, strided,
      c10::toString(dtype), seed);
}

Case random_case(const CaseSpec& spec) {
  at::Generator generator = at::detail::createCPUGenerator(spec.seed);
  Case example;
  example.q = random_tensor(spec.batch, spec.heads, spec.tq, spec, generator);
  example.k = random_tensor(spec.batch, spec.kv_heads, spec.tk, spec, generator);
  example.v = random_tensor(spec.batch, spec.kv_heads, spec.tk, spec, generator);
  AttentionParams& params = example.params;
  params.window = spec.window;
  params.layer_window = spec.layer_window;
  params.softcap = spec.softcap;
  params.scale = 1.0 / std::sqrt(static_cast<double>(spec.dim));
  if (spec.lists > 0) {
    params.key_group =
        at::randint(-1, spec.lists, {spec.batch, spec.list_sets, spec.tk}, generator, at::TensorOptions()).to(at::kInt);
    const at::Tensor order = at::rand({spec.batch, spec.list_sets, spec.tq, spec.lists}, generator, at::TensorOptions())
                                 .argsort(int64_t{-1});
    const at::Tensor unused =
        at::rand({spec.batch, spec.list_sets, spec.tq, spec.probes}, generator, at::TensorOptions()) < 0.2;
    params.probes = order.narrow(-1, 0, spec.probes).to(at::kInt).masked_fill(unused, -1);
  }
  if (spec.document > 0) {
    const at::Tensor starts =
        at::rand({spec.batch, spec.tk}, generator, at::TensorOptions()) < 1.0 / static_cast<double>(spec.document);
    const at::Tensor position = at::arange(spec.tk, at::kLong).expand({spec.batch, spec.tk});
    params.document_start = std::get<0>(position.masked_fill(~starts, 0).cummax(1)).to(at::kInt);
  }
  return example;
}

Case as_dtype(const Case& example, at::ScalarType dtype) {
  return {example.q.to(dtype), example.k.to(dtype), example.v.to(dtype), example.params};
}

Results run(AttentionFn function, const Case& example, const at::Tensor& grad_out) {
  const at::Tensor q = example.q.detach().requires_grad_();
  const at::Tensor k = example.k.detach().requires_grad_();
  const at::Tensor v = example.v.detach().requires_grad_();
  auto [out, lse] = function(q, k, v, example.params);
  const auto grads = torch::autograd::grad({out}, {q, k, v}, {grad_out.to(out.scalar_type())});
  return {out.detach(), lse.detach(), grads[0], grads[1], grads[2]};
}

std::vector<const kernels::cpu::StripMath*> all_strip_math() {
  std::vector<const kernels::cpu::StripMath*> all = kernels::cpu::available_strip_math();
  all.push_back(&kernels::cpu::wide::strip_math());
  return all;
}

AssertionResult matches_reference(const Case& example, const MatchOptions& options) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const at::Tensor grad_out = at::randn(example.q.sizes(), generator, at::TensorOptions()).to(example.q.scalar_type());
  const Results same = run(reference_attention, example, grad_out);
  const Results exact = run(reference_attention, as_dtype(example, at::kDouble), grad_out);

  // Weights are rebuilt as exp(s - lse) from rounded scores and a rounded lse, which leaves them a relative error of
  // `rounding`; the gradient of a score, A * (dO.v - delta), is a difference of numbers up to |dO| |v| (both
  // Euclidean).
  const auto longest = [](const at::Tensor& rows) { return rows.to(at::kDouble).norm(2, -1).max().item<double>(); };
  const double score = example.params.scale * longest(example.q) * longest(example.k);
  const double rounding = 4.0 * std::ldexp(1.0, -24) * (1.0 + score);
  // delta is taken from the output as it was stored.
  const double stored = 0.5 * epsilon(example.q.scalar_type()) * longest(exact.out);
  const double change = (rounding * longest(example.v) + stored) * longest(grad_out) * std::abs(example.params.scale);
  const std::tuple<const char*, at::Tensor Results::*, double> parts[] = {
      {"out", &Results::out, options.few_cells ? rounding * example.v.abs().max().item<double>() : 0.0},
      {"lse", &Results::lse, rounding},
      {"dq", &Results::dq, change * example.k.abs().max().item<double>()},
      {"dk", &Results::dk, change * example.q.abs().max().item<double>()},
      {"dv", &Results::dv, rounding * grad_out.abs().max().item<double>()}};
  for (const kernels::cpu::StripMath* math : options.math) {
    kernels::cpu::override_strip_math(math);
    const Results actual = run(attention, example, grad_out);
    kernels::cpu::override_strip_math(nullptr);
    for (const auto& [name, part, atol] : parts) {
      const AssertionResult result = as_exact_as(actual.*part, same.*part, exact.*part, atol);
      if (result) continue;
      return AssertionFailure() << name << (math == nullptr ? "" : fmt::format(" on {}", math->name)) << ": "
                                << result.message();
    }
  }
  return AssertionSuccess();
}

}  // namespace focus::testing
