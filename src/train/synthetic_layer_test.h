#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "train/distillation.h"

namespace focus {

/// A layer with two KV heads of two query heads each, whose keys come in kinds: a query finds keys of its own kind, so
/// that there is something for a router to learn.
struct SyntheticWeights {
  at::Tensor query, key, value, output;  // [32, 24], [16, 24], [16, 24], [24, 32]
};

inline SyntheticWeights synthetic_weights() {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(11);
  const auto randn = [&](int64_t rows, int64_t columns) {
    return at::randn({rows, columns}, generator) / std::sqrt(static_cast<double>(columns));
  };
  SyntheticWeights weights;
  weights.key = randn(16, 24) * 3;
  weights.query = at::cat({weights.key.narrow(0, 0, 8), weights.key.narrow(0, 0, 8), weights.key.narrow(0, 8, 8),
                           weights.key.narrow(0, 8, 8)});
  weights.value = randn(16, 24);
  weights.output = randn(24, 32);
  return weights;
}

inline DistillationLayer synthetic_layer(int64_t length, uint64_t seed) {
  static const SyntheticWeights weights = synthetic_weights();
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  at::Generator kinds_generator = at::make_generator<at::CPUGeneratorImpl>(99);
  const at::Tensor kinds = at::randn({6, 24}, kinds_generator);
  const at::Tensor kind = at::randint(0, 6, {length}, generator, at::kLong);
  DistillationLayer layer;
  layer.hidden = kinds.index_select(0, kind) + 0.3 * at::randn({length, 24}, generator);
  const auto heads = [&](const at::Tensor& weight) {
    return at::matmul(layer.hidden, weight.t()).view({length, -1, 8}).transpose(0, 1).contiguous();
  };
  layer.q = heads(weights.query);
  layer.k = heads(weights.key);
  layer.v = heads(weights.value);
  layer.query_weight = weights.query;
  layer.key_weight = weights.key;
  layer.output_weight = weights.output;
  layer.scale = 1 / std::sqrt(8.0);
  return layer;
}

}  // namespace focus
