#include "models/layers.h"

#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/error.h"
#include "models/fused_rows.h"
#include "models/onednn_linear.h"
#include "models/row_products.h"

namespace focus {

namespace {

constexpr int64_t kFewestWideRows = 8;
constexpr int64_t kWideElements = int64_t{1} << 24;

at::Tensor gelu_exact(const at::Tensor& x) {
  return at::gelu(x);
}
at::Tensor gelu_tanh(const at::Tensor& x) {
  return at::gelu(x, "tanh");
}
at::Tensor quick_gelu(const at::Tensor& x) {
  return x * at::sigmoid(x * 1.702);
}
at::Tensor silu(const at::Tensor& x) {
  return at::silu(x);
}
at::Tensor relu(const at::Tensor& x) {
  return at::relu(x);
}

struct NamedActivation {
  const char* name;
  Activation function;
};

constexpr std::array kActivations = {
    NamedActivation{"gelu", gelu_exact},     NamedActivation{"gelu_new", gelu_tanh},
    NamedActivation{"gelu_fast", gelu_tanh}, NamedActivation{"gelu_pytorch_tanh", gelu_tanh},
    NamedActivation{"relu", relu},           NamedActivation{"quick_gelu", quick_gelu},
    NamedActivation{"silu", silu},           NamedActivation{"swish", silu},
};

/// x / sqrt(mean(x^2) + eps) in float32 (float64 for float64).
at::Tensor normalised(const at::Tensor& x, double eps) {
  const at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  return wide * at::rsqrt(wide.square().mean(-1, true) + eps);
}

/// Whether this CPU multiplies matrices of the dtype itself. Without such instructions ATen takes six times as long as
/// for float32.
bool has_native_products(at::ScalarType dtype) {
#if defined(__x86_64__)
  static const bool bfloat16 = __builtin_cpu_supports("avx512bf16") != 0;
  return dtype == at::kBFloat16 && bfloat16;
#else
  static_cast<void>(dtype);
  return true;
#endif
}

bool worth_widening(const at::Tensor& x, const at::Tensor& weight) {
  const at::ScalarType dtype = weight.scalar_type();
  if ((dtype != at::kBFloat16 && dtype != at::kHalf) || !weight.is_cpu() || has_native_products(dtype)) return false;
  // With gradients the graph would keep float32 copies of all weights.
  return !(c10::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad()));
}

at::Tensor plain_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (prefers_onednn(x, weight)) return onednn_linear(x, weight, bias);
  return at::linear(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt);
}

/// linear() in float32, rounded at the end, over slices of the weight so that the float32 copy stays small.
at::Tensor wide_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  if (x.numel() / x.size(-1) < kFewestWideRows && weight.stride(1) == 1) {
    return row_products(x.reshape({-1, x.size(-1)}), {weight}, {bias}).front().view(shape);
  }
  const at::Tensor rows = x.to(at::kFloat);
  const at::Tensor out = at::empty(shape, x.options());
  const int64_t step = std::max<int64_t>(1, kWideElements / weight.size(1));
  for (int64_t begin = 0; begin < weight.size(0); begin += step) {
    const int64_t count = std::min(step, weight.size(0) - begin);
    at::Tensor part = plain_linear(rows, weight.narrow(0, begin, count).to(at::kFloat), at::Tensor());
    if (bias.defined()) part.add_(bias.narrow(0, begin, count));
    out.narrow(-1, begin, count).copy_(part);
  }
  return out;
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, NormWeight kind) {
  if (can_fuse_rows(x) && can_fuse_rows(weight) && weight.scalar_type() == x.scalar_type()) {
    return fused_rms_norm(x, weight, eps, kind);
  }
  const at::Tensor normal = normalised(x, eps);
  switch (kind) {
    case NormWeight::kAfterRounding:
      return weight * normal.to(x.scalar_type());
    case NormWeight::kBeforeRounding:
      return (weight * normal).to(x.scalar_type());
    case NormWeight::kOnePlus:
      return (normal * (1.0 + weight.to(normal.scalar_type()))).to(x.scalar_type());
  }
  fail("rms_norm: unknown kind of weight");
}

at::Tensor unit_rms(const at::Tensor& x, double eps) {
  if (can_fuse_rows(x)) return fused_rms_norm(x, {}, eps, NormWeight::kAfterRounding);
  return normalised(x, eps).to(x.scalar_type());
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (worth_widening(x, weight)) return wide_linear(x, weight, bias);
  return plain_linear(x, weight, bias);
}

std::vector<at::Tensor> linear_each(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                    const std::vector<at::Tensor>& biases) {
  const auto multiplied_here = [&](const at::Tensor& weight) {
    return worth_widening(x, weight) && weight.stride(1) == 1 && weight.scalar_type() == weights.front().scalar_type();
  };
  const bool together =
      x.numel() / x.size(-1) < kFewestWideRows && std::all_of(weights.begin(), weights.end(), multiplied_here);
  std::vector<at::Tensor> results;
  if (!together) {
    for (size_t i = 0; i < weights.size(); ++i) results.push_back(linear(x, weights[i], biases[i]));
    return results;
  }
  results = row_products(x.reshape({-1, x.size(-1)}), weights, biases);
  std::vector<int64_t> shape = x.sizes().vec();
  for (size_t i = 0; i < weights.size(); ++i) {
    shape.back() = weights[i].size(0);
    results[i] = results[i].view(shape);
  }
  return results;
}

at::Tensor split_heads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

at::Tensor merge_heads(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)});
}

Activation find_activation(const std::string& name, const std::string& where) {
  std::string known;
  for (const NamedActivation& activation : kActivations) {
    if (name == activation.name) return activation.function;
    known += (known.empty() ? "" : ", ") + std::string(activation.name);
  }
  fail("{}: unknown activation '{}' (known: {})", where, name, known);
}

void check_ids(const at::Tensor& ids, int64_t vocab_size) {
  require(ids.dim() == 2 && ids.scalar_type() == at::kLong && ids.numel() > 0,
          "token ids must be int64 [batch, tokens] with at least one token, not {} [{}]",
          c10::toString(ids.scalar_type()), fmt::join(ids.sizes(), ", "));
  const auto [low, high] = at::aminmax(ids);
  const int64_t smallest = low.item<int64_t>();
  const int64_t largest = high.item<int64_t>();
  require(smallest >= 0 && largest < vocab_size, "token id {} is outside the model's vocabulary of {}",
          smallest < 0 ? smallest : largest, vocab_size);
}

}  // namespace focus
