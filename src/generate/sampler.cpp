#include "generate/sampler.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace focus {

Sampler::Sampler(const SamplingOptions& options)
    : options_(options), generator_(at::make_generator<at::CPUGeneratorImpl>(options.seed)) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    fail_usage("--temperature {}: expected 0 (greedy) or more", options.temperature);
  }
  if (options.top_k < 0) fail_usage("--top-k {}: expected 0 (all) or more", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1)) fail_usage("--top-p {}: expected above 0 and up to 1", options.top_p);
  if (!(options.min_p >= 0 && options.min_p < 1)) fail_usage("--min-p {}: expected 0 (all) to below 1", options.min_p);
  if (!(options.repetition_penalty > 0) || !std::isfinite(options.repetition_penalty)) {
    fail_usage("--repetition-penalty {}: expected a number above 0, 1 for none", options.repetition_penalty);
  }
}

at::Tensor Sampler::sample(const at::Tensor& logits, const std::vector<int32_t>& seen) {
  at::Tensor scores = logits.to(at::kCPU, at::kFloat);
  require(!scores.isnan().any().item<bool>(), "{} gives NaN logits (are its weights damaged?)", options_.model);
  if (options_.repetition_penalty != 1 && !seen.empty()) {
    const at::Tensor ids = std::get<0>(at::_unique(at::tensor(seen, at::kInt).to(at::kLong)));
    const at::Tensor chosen = scores.index_select(-1, ids);
    const double penalty = options_.repetition_penalty;
    scores = scores.index_copy(-1, ids, at::where(chosen < 0, chosen * penalty, chosen / penalty));
  }
  if (options_.temperature == 0) return scores.argmax(-1);
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const at::Tensor highest = scores.amax(-1, /*keepdim=*/true).to(at::kDouble);
  require(highest.isfinite().all().item<bool>(), "{} gives infinite logits, among which none can be drawn",
          options_.model);
  // From the highest, and in float64: any temperature leaves it at 0 and the others in their order.
  scores = (scores.to(at::kDouble) - highest) / options_.temperature;
  const int64_t vocabulary = scores.size(-1);
  if (options_.top_k > 0 && options_.top_k < vocabulary) {
    const at::Tensor least = std::get<0>(scores.topk(options_.top_k, -1)).narrow(-1, options_.top_k - 1, 1);
    scores = scores.masked_fill(scores < least, kNever);
  }
  if (options_.top_p < 1) {
    const auto [sorted, order] = scores.sort(-1, /*descending=*/true);
    const at::Tensor probabilities = sorted.softmax(-1);
    // A token stays if those before it do not yet reach p; the most likely one therefore always stays.
    const at::Tensor drop = probabilities.cumsum(-1) - probabilities >= options_.top_p;
    scores = scores.masked_fill(at::zeros_like(drop).scatter(-1, order, drop), kNever);
  }
  if (options_.min_p > 0) {
    const at::Tensor probabilities = scores.softmax(-1);
    const at::Tensor most = std::get<0>(probabilities.max(-1, /*keepdim=*/true));
    scores = scores.masked_fill(probabilities < most * options_.min_p, kNever);
  }
  return at::multinomial(scores.softmax(-1).to(at::kFloat), 1, /*replacement=*/false, generator_).squeeze(-1);
}

}  // namespace focus
