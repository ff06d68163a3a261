#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attention/method.h"
#include "generate/sampler.h"
#include "models/model.h"

namespace focus {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  SamplingOptions sampling;
  std::vector<int64_t> stop_ids;  ///< Any of these ends the text; it is the last id of the result.
  int64_t prefill_chunk = 512;    ///< Prompt tokens processed at a time.
  bool use_cache = true;          ///< False: recompute everything for each token (for checks; slow).
};

struct GenerateResult {
  std::vector<int32_t> ids;  ///< New tokens only.
  bool stopped = false;      ///< A stop id came (else the token limit, or the callback said to stop).
  double prefill_seconds = 0;
  double decode_seconds = 0;
  int64_t cache_bytes = 0;
  PairCount prefill_pairs;
  PairCount decode_pairs;
};

/// Continues `prompt` token by token. `on_token` sees each new id as it comes and ends the run by returning false.
/// Throws Error if the prompt is empty, or if prompt and new tokens do not fit the model's positions (both numbers
/// named).
GenerateResult generate(const CausalLM& model, AttentionMethod& method, const std::vector<int32_t>& prompt,
                        const GenerateOptions& options, const std::function<bool(int32_t)>& on_token = {});

}  // namespace focus
