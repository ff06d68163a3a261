#pragma once

#include <ATen/ATen.h>
#include <ATen/core/Generator.h>

#include <cstdint>
#include <string>
#include <vector>

namespace focus {

/// How the next token is chosen from the logits.
struct SamplingOptions {
  double temperature = 0;  ///< 0: greedy.
  int64_t top_k = 0;       ///< Keep the k most likely tokens; 0: all.
  double top_p = 1.0;      ///< Keep the smallest set of tokens whose probabilities reach p; 1: all.
  double min_p = 0;        ///< Keep tokens of at least this share of the most likely one's probability; 0: all.
  /// Scores of tokens that were seen are divided by this if positive, else multiplied (Keskar et al. 2019); 1: none.
  double repetition_penalty = 1.0;
  uint64_t seed = 0;
  std::string model = "the model";  ///< What messages call the model.
};

/// Draws tokens. Filters apply in the order repetition penalty, temperature, top-k, top-p, min-p, as in transformers.
class Sampler {
 public:
  /// Throws UsageError naming the flag: temperature < 0, top-k < 0, top-p outside (0, 1],
  /// min-p outside [0, 1), repetition-penalty <= 0.
  explicit Sampler(const SamplingOptions& options);

  /// logits [B, V] -> ids int64 [B]. `seen` are ids in the text so far, for the penalty. Greedy ties go to the lowest
  /// id. Throws Error if a logit is NaN, and to draw where the highest is not finite.
  at::Tensor sample(const at::Tensor& logits, const std::vector<int32_t>& seen = {});

 private:
  SamplingOptions options_;
  at::Generator generator_;
};

}  // namespace focus
