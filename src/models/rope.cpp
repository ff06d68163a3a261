#include "models/rope.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "models/fused_rows.h"

namespace focus {

namespace {

/// arange(0, dim, 2) / dim, float32.
at::Tensor exponents(int64_t dim) {
  return at::arange(0, dim, 2, at::kLong).to(at::kFloat) / dim;
}

at::Tensor default_frequencies(double theta, int64_t dim) {
  return at::reciprocal(at::pow(theta, exponents(dim)));
}

/// "Dynamic NTK": the base grows with the length. Beyond max_positions transformers computes the base in float32.
at::Tensor dynamic_frequencies(const RopeConfig& config, int64_t dim, int64_t length) {
  if (length <= config.max_positions) return default_frequencies(config.theta, dim);
  const at::Tensor ratio = at::scalar_tensor(length, at::kLong) * config.factor / config.max_positions;
  const double exponent = static_cast<double>(dim) / static_cast<double>(dim - 2);
  const at::Tensor base = at::pow(ratio - (config.factor - 1), exponent) * config.theta;
  return at::reciprocal(at::pow(base, exponents(dim)));
}

/// Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between interpolated.
at::Tensor llama3_frequencies(const RopeConfig& config, int64_t dim) {
  const at::Tensor plain = default_frequencies(config.theta, dim);
  const double context = static_cast<double>(config.original_positions);
  const double low_wavelength = context / config.low_freq_factor;
  const double high_wavelength = context / config.high_freq_factor;
  const at::Tensor wavelength = at::reciprocal(plain) * (2 * std::numbers::pi);
  const at::Tensor scaled = at::where(wavelength > low_wavelength, plain / config.factor, plain);
  const at::Tensor smooth = (at::reciprocal(wavelength) * context - config.low_freq_factor) /
                            (config.high_freq_factor - config.low_freq_factor);
  const at::Tensor blended = (1 - smooth) * scaled / config.factor + smooth * scaled;
  const at::Tensor medium = (wavelength >= high_wavelength).logical_and(wavelength <= low_wavelength);
  return at::where(medium, blended, scaled);
}

/// YaRN (Peng et al. 2023, section 3.2): dimensions that turn often are kept, those that turn rarely interpolated.
at::Tensor yarn_frequencies(const RopeConfig& config, int64_t dim) {
  const auto correction = [&](double rotations) {
    return static_cast<double>(dim) *
           std::log(static_cast<double>(config.original_positions) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(config.theta));
  };
  double low = correction(config.beta_fast);
  double high = correction(config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor powers = at::pow(config.theta, exponents(dim));
  const at::Tensor extrapolated = at::reciprocal(powers);
  const at::Tensor interpolated = at::reciprocal(powers * config.factor);
  const at::Tensor ramp = at::clamp((at::arange(dim / 2, at::kFloat) - low) / (high - low), 0, 1);
  const at::Tensor keep = 1 - ramp;
  return interpolated * (1 - keep) + extrapolated * keep;
}

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

void read_yarn(const ConfigFields& fields, RopeConfig& rope) {
  rope.factor = fields.has("factor")
                    ? fields.number("factor")
                    : static_cast<double>(rope.max_positions) / static_cast<double>(rope.original_positions);
  const double mscale = fields.number("mscale", 0);
  const double mscale_all = fields.number("mscale_all_dim", 0);
  const double implied = mscale != 0 && mscale_all != 0
                             ? yarn_scale(rope.factor, mscale) / yarn_scale(rope.factor, mscale_all)
                             : yarn_scale(rope.factor, 1);
  rope.attention_factor = fields.number("attention_factor", implied);
  const double fast = fields.number("beta_fast", 0);
  const double slow = fields.number("beta_slow", 0);
  if (fast != 0) rope.beta_fast = fast;
  if (slow != 0) rope.beta_slow = slow;
  rope.truncate = fields.flag("truncate", true);
}

}  // namespace

RopeConfig RopeConfig::read(const ConfigFields& config) {
  const nlohmann::json& scaling = config.object("rope_scaling");
  const nlohmann::json& chosen = scaling.empty() ? config.object("rope_parameters") : scaling;
  const ConfigFields fields(chosen, config.file());
  RopeConfig rope;
  rope.max_positions = config.size("max_position_embeddings", 2048);
  rope.type = fields.text("rope_type", fields.text("type", "default"));
  rope.theta = fields.number("rope_theta", config.number("rope_theta", 10000.0));
  require(rope.theta > 1, "{}: rope_theta is {}, expected a number above 1", config.file(), rope.theta);
  for (const auto& [key, value] : chosen.items()) {
    require(!value.is_object(), "{}: rope parameters per layer type ('{}') are not supported", config.file(), key);
  }
  for (const ConfigFields* place : {&fields, &config}) {
    const double rotated = place->number("partial_rotary_factor", 1.0);
    require(rotated == 1.0, "{}: partial_rotary_factor is {}, only 1 is supported", config.file(), rotated);
  }
  if (rope.type == "llama3" || rope.type == "yarn") {
    rope.original_positions = config.size("original_max_position_embeddings",
                                          fields.size("original_max_position_embeddings", rope.max_positions));
  }
  if (rope.type == "linear" || rope.type == "dynamic") {
    rope.factor = fields.number("factor");
  } else if (rope.type == "llama3") {
    rope.factor = fields.number("factor");
    rope.low_freq_factor = fields.number("low_freq_factor");
    rope.high_freq_factor = fields.number("high_freq_factor");
    require(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor,
            "{}: rope low_freq_factor {} and high_freq_factor {} must be positive and rising", config.file(),
            rope.low_freq_factor, rope.high_freq_factor);
  } else if (rope.type == "yarn") {
    read_yarn(fields, rope);
  } else {
    require(rope.type == "default", "{}: unknown rope type '{}' (known: default, linear, dynamic, llama3, yarn)",
            config.file(), rope.type);
  }
  require(rope.factor > 0, "{}: the rope factor is {}, expected a positive number", config.file(), rope.factor);
  return rope;
}

at::Tensor rope_inverse_frequencies(const RopeConfig& config, int64_t head_dim, int64_t length) {
  if (config.type == "linear") return default_frequencies(config.theta, head_dim) / config.factor;
  if (config.type == "dynamic") return dynamic_frequencies(config, head_dim, length);
  if (config.type == "llama3") return llama3_frequencies(config, head_dim);
  if (config.type == "yarn") return yarn_frequencies(config, head_dim);
  return default_frequencies(config.theta, head_dim);
}

Rope::Rope(RopeConfig config, int64_t head_dim)
    : config_(std::move(config)),
      head_dim_(head_dim),
      frequencies_(rope_inverse_frequencies(config_, head_dim, config_.max_positions)) {}

std::pair<at::Tensor, at::Tensor> Rope::tables(const at::Tensor& positions, at::ScalarType dtype) const {
  const std::lock_guard lock(mutex_);
  const uint32_t version = positions.is_inference() ? 0 : static_cast<uint32_t>(positions._version());
  if (last_positions_.defined() && last_positions_.is_same(positions) && last_version_ == version &&
      last_.first.scalar_type() == dtype) {
    return last_;
  }
  // The tables may serve a later pass with gradients, which inference tensors cannot.
  const c10::InferenceMode ordinary(false);
  at::Tensor frequencies = frequencies_;
  if (config_.type == "dynamic") {
    const int64_t length = positions.max().item<int64_t>() + 1;
    if (length > config_.max_positions) frequencies = rope_inverse_frequencies(config_, head_dim_, length);
  }
  // [B, 1, T, 1] * [D/2]
  const at::Tensor angles = positions.to(at::kFloat).unsqueeze(1).unsqueeze(-1) * frequencies.to(positions.device());
  last_ = {(angles.cos() * config_.attention_factor).to(dtype), (angles.sin() * config_.attention_factor).to(dtype)};
  last_positions_ = positions;
  last_version_ = version;
  return last_;
}

at::Tensor Rope::apply(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  if (can_fuse_rows(x) && can_fuse_rows(cos) && can_fuse_rows(sin)) return fused_rope(x, cos, sin);
  const int64_t half = x.size(-1) / 2;
  const at::Tensor first = x.narrow(-1, 0, half);
  const at::Tensor second = x.narrow(-1, half, half);
  return at::cat({first * cos - second * sin, second * cos + first * sin}, -1);
}

}  // namespace focus
