#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/attention_bench.h"

namespace focus {

/// Names for --methods of `focus bench decode`: full (all keys of the cache, our kernel), focus (lists, window and
/// sinks out of a ListCache), sdpa (all keys, ATen's fused attention).
std::vector<std::string> decode_bench_methods();

/// What `focus bench decode` measures: one new token against caches that hold the options' lengths, without the model
/// around it. Returns one JSON object a length and method (keys: docs/formats.md); every figure comes after a
/// comparison with the naive reference. Options about gradients, routers and sampling must be at their defaults. Throws
/// UsageError for options that do not fit together, Error for a wrong result.
std::vector<nlohmann::json> run_decode_bench(const AttentionBenchOptions& options, const MachinePeaks& peaks,
                                             const std::function<bool()>& keep_going);

}  // namespace focus
