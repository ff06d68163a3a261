#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/method.h"
#include "models/model.h"

namespace focus {

/// What one timed stretch of a text gave.
struct StretchResult {
  double ms = 0;
  double attention_ms = 0;  ///< Of it, inside the attention method; 0 where that is not known.
  at::Tensor logits;        ///< float32 [V], after the last token.
};

/// A model that reads a prompt and then goes on token by token, so that the two can be timed.
class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  virtual std::string name() const = 0;
  /// Forgets what came before and reads the prompt, with the logits of its last token.
  virtual StretchResult prefill(const std::vector<int32_t>& prompt) = 0;
  /// Reads these ids one by one after the prompt, each with its logits and the choice of the likeliest token; then
  /// forgets them again, so that it can be repeated.
  virtual StretchResult decode(const std::vector<int32_t>& ids) = 0;
  /// The logits after all of it read in one pass without a cache, to compare with; undefined if it has none.
  virtual at::Tensor recompute(const std::vector<int32_t>& ids) = 0;
  /// Of the last prefill() or decode().
  virtual PairCount pairs() const { return {}; }
  /// Bytes of keys, values and lists of the prompt; 0 where that is not known.
  virtual int64_t cache_bytes() const { return 0; }
};

struct OwnRunnerOptions {
  int64_t prefill_chunk = 512;
  int64_t spare = 0;  ///< Tokens after the prompt that the cache has room for.
  std::optional<at::ScalarType> cache_dtype;
};

/// This program's model under a method. Both must outlive the runner.
std::unique_ptr<ModelRunner> make_own_runner(const CausalLM& model, AttentionMethod& method,
                                             const OwnRunnerOptions& options);

/// transformers with its fused attention (SDPA), in a process of its own: scripts/transformers_bench.py, started with
/// python_command(). `dtype` is a name such as bfloat16. Throws Error when it cannot be had.
std::unique_ptr<ModelRunner> make_transformers_runner(const std::filesystem::path& model, const std::string& dtype,
                                                      int64_t threads, const std::optional<RopeScaling>& scaling);

}  // namespace focus
