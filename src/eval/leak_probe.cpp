#include "eval/leak_probe.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace focus {

namespace {

std::vector<int64_t> prefix_lengths(int64_t length) {
  std::vector<int64_t> prefixes;
  for (const int64_t p : {int64_t{1}, int64_t{3}, int64_t{7}, int64_t{15}, int64_t{31}, int64_t{32}, int64_t{63},
                          length / 2, 3 * length / 4, length - 1}) {
    if (p < length) prefixes.push_back(p);
  }
  std::sort(prefixes.begin(), prefixes.end());
  prefixes.erase(std::unique(prefixes.begin(), prefixes.end()), prefixes.end());
  return prefixes;
}

/// What rounding may change of a logit, as a share of the largest. Both passes have the same lengths, so that only sums
/// over lists whose later keys differ can come out in another order: in a type of 16 bits that moves a few last places.
double rounding(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 64 * 0x1p-52;
    case at::kFloat:
      return 64 * 0x1p-23;
    case at::kHalf:
      return 4 * 0x1p-11;
    default:
      return 4 * 0x1p-8;
  }
}

}  // namespace

LeakProbeResult probe_leak(const CausalLM& model, AttentionMethod& method, const std::vector<int32_t>& ids,
                           uint64_t seed) {
  const at::NoGradGuard no_grad;
  require(ids.size() >= 2, "the leak probe needs a prompt of at least 2 tokens, got {}", ids.size());
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor prompt = at::tensor(ids, at::kLong).unsqueeze(0);
  const int64_t length = prompt.size(1);
  const auto logits_at = [&](const at::Tensor& hidden, const at::Tensor& rows) {
    return model.logits(hidden.index_select(1, rows)).to(at::kDouble);
  };
  // Short prefixes are probed inside a short prompt, to save time: long enough for tokens beyond any usual window.
  const int64_t short_length = std::min<int64_t>(length, 192);
  const at::Tensor short_base = model.forward(prompt.narrow(1, 0, short_length), method);
  const at::Tensor long_base = short_length < length ? model.forward(prompt, method) : short_base;
  LeakProbeResult result;
  double largest_logit = 0;
  for (const int64_t prefix : prefix_lengths(length)) {
    const at::Tensor& base = prefix < 64 ? short_base : long_base;
    const int64_t suffix_length = base.size(1) - prefix;
    // A sample of positions, the last one before the suffix among them: the head over a large vocabulary would cost
    // more than the model itself.
    const int64_t sampled = std::min<int64_t>(prefix, 32);
    const at::Tensor rows =
        at::linspace(static_cast<double>(prefix - 1), 0, sampled, at::kDouble).round().to(at::kLong);
    const at::Tensor expected = logits_at(base, rows);
    largest_logit = std::max(largest_logit, expected.abs().max().item<double>());
    const at::Tensor random =
        at::randint(0, model.config().vocab_size, {1, suffix_length}, generator, at::TensorOptions(at::kLong));
    const at::Tensor repeated = random.narrow(1, 0, 1).expand({1, suffix_length});
    for (const at::Tensor& suffix : {random, repeated}) {
      const at::Tensor changed = at::cat({prompt.narrow(1, 0, prefix), suffix}, 1);
      const at::Tensor logits = logits_at(model.forward(changed, method), rows);
      const double diff = (logits - expected).abs().max().item<double>();
      require(std::isfinite(diff),
              "the logits of the leak probe are not finite: the model or adapter gives NaN or Inf");
      result.logits_compared += logits.numel();
      if (!(diff <= result.max_abs_diff)) {
        result.max_abs_diff = diff;
        result.worst_prefix = prefix;
      }
    }
  }
  result.tolerance = rounding(long_base.scalar_type()) * std::max(1.0, largest_logit);
  return result;
}

LeakProbeResult probe_leak(const CausalLM& model, AttentionMethod& method, const std::vector<Document>& documents,
                           uint64_t seed) {
  constexpr int64_t kProbeTokens = 512;
  require(!documents.empty(), "the leak probe needs a document");
  const Document& longest = *std::max_element(documents.begin(), documents.end(),
                                              [](const Document& a, const Document& b) { return a.size() < b.size(); });
  const int64_t length =
      std::min({kProbeTokens, static_cast<int64_t>(std::ssize(longest)), model.config().max_positions});
  return probe_leak(model, method, std::vector<int32_t>(longest.begin(), longest.begin() + length), seed);
}

}  // namespace focus
