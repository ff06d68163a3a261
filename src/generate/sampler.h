#pragma once

#include <ATen/ATen.h>
#include <ATen/core/Generator.h>

#include <cstdint>

namespace focus {

/// How the next token is chosen from the logits.
struct SamplingOptions {
  double temperature = 0;  ///< 0: greedy.
  int64_t top_k = 0;       ///< Keep the k most likely tokens; 0: all.
  double top_p = 1.0;      ///< Keep the smallest set of tokens whose probabilities reach p; 1: all.
  uint64_t seed = 0;
};

/// Draws tokens. Filters apply in the order temperature, top-k, top-p, as in transformers.
class Sampler {
 public:
  /// Throws UsageError naming the flag: temperature < 0, top-k < 0, top-p outside (0, 1].
  explicit Sampler(const SamplingOptions& options);

  /// logits [B, V] -> ids int64 [B]. Greedy ties go to the lowest id. Throws Error if a logit is NaN.
  at::Tensor sample(const at::Tensor& logits);

 private:
  SamplingOptions options_;
  at::Generator generator_;
};

}  // namespace focus
