#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "attention/method.h"
#include "generate/sampler.h"
#include "models/model.h"

namespace focus {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  SamplingOptions sampling;       ///< Row r of a batch draws with seed + r.
  std::vector<int64_t> stop_ids;  ///< Any of these ends the text; it is the last id of the result.
  int64_t prefill_chunk = 512;    ///< Prompt tokens processed at a time.
  bool use_cache = true;          ///< False: recompute everything for each token (for checks; slow).
  /// Most tokens of prompt and text together, of each row, which bounds the cache; a text that reaches it ends. Absent:
  /// prompt and max_new_tokens must fit the model's positions.
  std::optional<int64_t> max_context;
  std::optional<at::ScalarType> cache_dtype;  ///< Of keys and values in the cache; absent: the model's.
};

enum class StopReason { kLength, kStopId, kContext, kCaller };

/// The continuation of one prompt.
struct Continuation {
  std::vector<int32_t> ids;  ///< New tokens only.
  StopReason reason = StopReason::kLength;
};

struct GenerateResult {
  std::vector<Continuation> rows;  ///< One a prompt.
  double prefill_seconds = 0;
  double decode_seconds = 0;
  int64_t cache_bytes = 0;
  int64_t context = 0;  ///< Most tokens that the cache could have come to hold, padding included.
  PairCount prefill_pairs;
  PairCount decode_pairs;
};

/// Continues prompts of any lengths side by side, token by token; every row is what it would be alone. Shorter prompts
/// are padded on the left, and the padding takes part in nothing. `on_token` sees each new id of each row as it comes
/// and ends that row by returning false. Throws Error if a prompt is empty, or if it does not fit the context (both
/// numbers named).
GenerateResult generate(const CausalLM& model, AttentionMethod& method,
                        const std::vector<std::vector<int32_t>>& prompts, const GenerateOptions& options,
                        const std::function<bool(int64_t row, int32_t id)>& on_token = {});

/// Bytes of keys and values of `tokens` tokens of a batch over all layers, kept in `dtype` (absent: the model's).
int64_t cache_bytes(const CausalLM& model, int64_t batch, int64_t tokens, std::optional<at::ScalarType> dtype = {});

}  // namespace focus
