#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <vector>

#include "attention/routing/router.h"

/// Makings for tests of routing and of what stands on it.
namespace focus::testing_support {

/// A router with random weights for some layers.
inline Router random_router(const RoutingConfig& config, const std::vector<int64_t>& layers, int64_t hidden_size,
                            int64_t kv_heads, uint64_t seed) {
  at::manual_seed(seed);
  std::map<int64_t, LayerRouter> weights;
  const int64_t sets = config.shared ? 1 : kv_heads;
  for (const int64_t number : layers) {
    LayerRouter layer;
    for (const auto& [name, shape] : LayerRouter::layout(config, hidden_size, sets)) {
      at::Tensor& tensor = layer.tensor(name);
      tensor = at::randn(shape, at::kFloat);
      if (name != "codebook" && name != "potentials" && name != "centroids") {
        tensor.mul_(1.0 / std::sqrt(static_cast<double>(hidden_size)));
      }
      if (name == "codebook") tensor.mul_(0.3);
      if (name == "probe_exponent") tensor.fill_(1.0);
    }
    weights.emplace(number, layer);
  }
  return Router(config, weights);
}

/// Positions 0 .. tokens - 1, int64 [batch, tokens].
inline at::Tensor positions(int64_t batch, int64_t tokens) {
  return at::arange(tokens, at::kLong).unsqueeze(0).expand({batch, tokens}).contiguous();
}

}  // namespace focus::testing_support
