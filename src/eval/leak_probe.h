#pragma once

#include <cstdint>
#include <vector>

#include "attention/method.h"
#include "data/token_windows.h"
#include "models/model.h"

namespace focus {

struct LeakProbeResult {
  double max_abs_diff = 0;   ///< Largest change of an earlier logit when later tokens change.
  double tolerance = 0;      ///< Largest change that rounding alone may cause.
  int64_t worst_prefix = 0;  ///< Prefix length at which the largest change was seen.
  int64_t logits_compared = 0;
  bool leaks() const { return !(max_abs_diff <= tolerance); }  // NaN counts as a leak.
};

/// Replaces suffixes of a real prompt and requires the logits of the prefix to stay. Prefix lengths are 1, 3, 7, 15,
/// 31, 32, 63 and fractions of the prompt; each suffix is replaced once by random tokens and once by one repeated
/// token, which moves anything that is normalised over the sequence. Lengths stay equal, so that only content differs.
/// (Probing before a loss is reported follows karpathy/nanochat, pull request 845.)
/// `ids` is the prompt, at least 2 tokens; the tolerance is that of rounding in the compute dtype, scaled by the
/// logits.
LeakProbeResult probe_leak(const CausalLM& model, AttentionMethod& method, const std::vector<int32_t>& ids,
                           uint64_t seed = 0);

/// The probe with the longest of some documents as its prompt, of which at most 512 tokens, and no more than the model
/// has positions, are taken. Throws Error when that is fewer than 2.
LeakProbeResult probe_leak(const CausalLM& model, AttentionMethod& method, const std::vector<Document>& documents,
                           uint64_t seed = 0);

}  // namespace focus
