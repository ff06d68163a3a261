#include "models/layers.h"

#include <fmt/ranges.h>

#include <array>
#include <optional>

#include "base/error.h"

namespace focus {

namespace {

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

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, NormWeight kind) {
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
  return normalised(x, eps).to(x.scalar_type());
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt);
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
