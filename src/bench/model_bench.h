#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/model_runner.h"

namespace focus {

/// What `focus bench prefill` and `focus bench decode` measure: a whole model that reads `length` tokens of a text, or
/// the tokens after them one by one.
struct ModelBenchOptions {
  bool decode = false;
  std::vector<int64_t> lengths;
  int64_t new_tokens = 32;  ///< Of a sample of decoding.
  int64_t repeats = 3;
  double tolerance = 1e-3;  ///< Largest difference of two logits over the largest logit that rounding explains.
};

/// Runs the measurements, the runners taking turns, and returns one JSON object a length and runner (keys:
/// docs/performance.md). Before anything is timed, each runner's logits at the end are compared with its own
/// recompute() and, for those named full and transformers, with each other; a runner without either comparison is
/// refused. `text` must have the longest length, to decode new_tokens more. `keep_going` is asked between rounds; after
/// false the lengths that were finished are returned. Throws Error naming both figures when logits differ by more than
/// the tolerance or the text is too short.
std::vector<nlohmann::json> run_model_bench(const ModelBenchOptions& options,
                                            const std::vector<std::unique_ptr<ModelRunner>>& runners,
                                            const std::vector<int32_t>& text, const std::function<bool()>& keep_going);

}  // namespace focus
