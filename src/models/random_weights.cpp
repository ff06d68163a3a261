#include "models/random_weights.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <string>

#include "base/error.h"

namespace focus {

namespace {

/// A seed of its own for every weight (FNV-1a over the name), so that none depends on how many came before.
uint64_t seed_of(const std::string& name, uint64_t seed) {
  uint64_t state = 14695981039346656037ull ^ seed;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return state;
}

}  // namespace

WeightInit random_weights(const ConfigFields& config, uint64_t seed) {
  const double range = config.number("initializer_range", 0.02);
  require(range > 0 && std::isfinite(range), "{}: initializer_range is {}, expected a positive number", config.file(),
          range);
  const std::string family = config.text("model_type", "");
  const double residual = family == "gpt2" ? 1.0 / std::sqrt(2.0 * static_cast<double>(config.size("n_layer"))) : 1.0;
  // Gemma's norms multiply by 1 + weight.
  const double norm = family == "gemma2" ? 0.0 : 1.0;
  return [=](const std::string& name, at::IntArrayRef shape) {
    if (name.ends_with(".bias")) return at::zeros(shape, at::kFloat);
    if (shape.size() == 1) return at::full(shape, norm, at::kFloat);
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed_of(name, seed));
    const double deviation = name.ends_with("c_proj.weight") ? range * residual : range;
    return at::randn(shape, generator, at::kFloat).mul_(deviation);
  };
}

}  // namespace focus
