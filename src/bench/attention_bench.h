#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/peaks.h"
#include "bench/random_lists.h"
#include "bench/timing.h"

namespace focus {

/// What `focus bench attention` measures: one call of the op over a whole sequence.
struct AttentionBenchOptions {
  std::vector<int64_t> lengths = {1024, 4096};
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 64;
  at::ScalarType dtype = at::kFloat;  ///< Float, BFloat16 or Half.
  int64_t groups = 8;
  int64_t groups_per_token = 1;
  int64_t window = 128;
  int64_t sinks = 4;
  double skew = 1.0;            ///< Largest list as a multiple of the mean.
  std::string probes = "auto";  ///< own, uniform or proportional; auto: own for one group a token, else proportional.
  bool symmetric = false;
  /// full (dense, our kernel), focus (lists), window (window and sinks alone), sdpa (ATen's fused dense attention).
  std::vector<std::string> methods = {"full", "focus", "sdpa"};
  bool backward = false;
  bool routing = false;  ///< Also time the router that would give the lists.
  int64_t repeats = 5;
  int64_t dense_limit = 65536;  ///< Beyond it dense methods are timed on sampled rows and extrapolated.
  int64_t seed = 0;
  BenchClock clock = BenchClock::kWall;
};

/// Throws UsageError when options do not fit together.
void check_bench_options(const AttentionBenchOptions& options);

/// options.probes with auto resolved.
ProbeChoice probe_choice(const AttentionBenchOptions& options);

/// Names for --methods of `focus bench attention`.
std::vector<std::string> attention_bench_methods();

/// Runs the measurements and returns one JSON object a length, method and pass (keys: docs/formats.md). Every figure
/// comes after the correctness gate of gate.h. `keep_going` is asked between rounds; after false the lengths that were
/// finished are returned. Throws UsageError for options that do not fit together, Error for a wrong result.
std::vector<nlohmann::json> run_attention_bench(const AttentionBenchOptions& options, const MachinePeaks& peaks,
                                                const std::function<bool()>& keep_going);

}  // namespace focus
