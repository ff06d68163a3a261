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

/// What `focus bench decode` measures: one new token against a cache that holds the options' lengths, without the model
/// around it. As in a model of many layers, keys come from memory: the tokens take turns among copies of the cache, so
/// many that at least twice the last cache before memory is read between two uses of one (as far as a quarter of the
/// free memory, and 2 GiB, hold them), and among 16 queries with probes of their own. Returns one JSON object a length
/// and method (keys: docs/formats.md); every figure comes after a comparison with the naive reference. Options about
/// gradients, routers and sampling must be at their defaults. Throws UsageError for options that do not fit together,
/// Error for a wrong result.
std::vector<nlohmann::json> run_decode_bench(const AttentionBenchOptions& options, const MachinePeaks& peaks,
                                             const std::function<bool()>& keep_going);

}  // namespace focus
