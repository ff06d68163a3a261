#include "bench/decode_bench.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "attention/decode.h"
#include "attention/methods/list_cache.h"
#include "base/build_info.h"
#include "base/error.h"
#include "base/log.h"
#include "bench/random_lists.h"
#include "kernels/cpu/strip_math.h"

namespace focus {

namespace {

using nlohmann::json;

constexpr double kMinSampleMs = 20.0;

// A cache of `length` tokens and the query of the last of them.
struct DecodeProblem {
  at::Tensor q;  // [B, Hq, 1, D]
  std::unique_ptr<ListCache> cache;
  at::Tensor probes;  // int32 [B, Hg, slots]
  int64_t window = 0;
  double scale = 1.0;

  int64_t length() const { return cache->length(); }
  int64_t sets() const { return probes.size(1); }
};

DecodeProblem make_problem(const AttentionBenchOptions& options, int64_t length, at::ScalarType dtype) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(options.seed));
  const auto draw = [&](int64_t heads, int64_t tokens) {
    return at::randn({options.batch, heads, tokens, options.head_dim}, generator, at::TensorOptions()).to(dtype);
  };
  const AttentionParams lists =
      random_lists({options.batch, options.kv_heads, length, options.groups, options.groups_per_token, options.sinks,
                    options.skew, probe_choice(options), options.symmetric, static_cast<uint64_t>(options.seed)});
  DecodeProblem problem;
  problem.q = draw(options.heads, 1);
  problem.cache = std::make_unique<ListCache>(options.batch, length);
  problem.cache->append(draw(options.kv_heads, length), draw(options.kv_heads, length), *lists.key_group);
  problem.probes = lists.probes->select(2, length - 1).contiguous();
  problem.window = options.window;
  problem.scale = 1.0 / std::sqrt(static_cast<double>(options.head_dim));
  return problem;
}

std::vector<KeyChoice> choose(const DecodeProblem& problem) {
  std::vector<KeyChoice> chosen;
  const int64_t slots = problem.probes.size(2);
  const int32_t* probes = problem.probes.const_data_ptr<int32_t>();
  const int64_t i = problem.length() - 1;
  for (int64_t b = 0; b < problem.probes.size(0); ++b) {
    for (int64_t s = 0; s < problem.sets(); ++s, probes += slots) {
      chosen.push_back(problem.cache->choose(b, s, probes, slots, 0, std::max<int64_t>(0, i - problem.window)));
    }
  }
  return chosen;
}

at::Tensor run_focus(const DecodeProblem& problem) {
  return decode_attention(problem.q, problem.cache->keys(), problem.cache->values(), choose(problem), problem.sets(),
                          problem.scale, 0.0);
}

at::Tensor run_full(const DecodeProblem& problem) {
  const std::vector<KeyChoice> all(static_cast<size_t>(problem.q.size(0)), KeyChoice{{}, 0, problem.length()});
  return decode_attention(problem.q, problem.cache->keys(), problem.cache->values(), all, 1, problem.scale, 0.0);
}

at::Tensor run_sdpa(const DecodeProblem& problem) {
  const int64_t kv_heads = problem.cache->keys().size(1);
  const at::Tensor rows =
      problem.q.reshape({problem.q.size(0), kv_heads, problem.q.size(1) / kv_heads, problem.q.size(3)});
  return at::scaled_dot_product_attention(rows, problem.cache->keys(), problem.cache->values(), {}, 0.0, false,
                                          problem.scale)
      .reshape(problem.q.sizes());
}

struct Contender {
  std::string method;
  at::Tensor (*run)(const DecodeProblem&);
  double keys = 0;  // read, of all KV heads
  double max_error = 0;
};

Contender make_contender(const std::string& method, const DecodeProblem& problem) {
  Contender contender;
  contender.method = method;
  contender.run = method == "focus" ? run_focus : method == "full" ? run_full : run_sdpa;
  AttentionParams params;
  params.scale = problem.scale;
  const double kv_heads = static_cast<double>(problem.cache->keys().size(1));
  contender.keys = static_cast<double>(problem.q.size(0) * problem.length()) * kv_heads;
  if (method == "focus") {
    params.key_group = problem.cache->key_group();
    params.probes = problem.probes.unsqueeze(2);
    params.window = problem.window;
    contender.keys = 0;
    for (const KeyChoice& choice : choose(problem)) contender.keys += static_cast<double>(choice.count());
    contender.keys *= kv_heads / static_cast<double>(problem.sets());
  }
  const auto reference = [&](at::ScalarType type) {
    return std::get<0>(reference_attention(problem.q.to(type), problem.cache->keys().to(type),
                                           problem.cache->values().to(type), params))
        .to(at::kDouble);
  };
  const at::Tensor exact = reference(at::kDouble);
  const at::ScalarType type = problem.q.scalar_type();
  const double roundings = type == at::kFloat ? 4 * std::ldexp(1.0, -24) : 4 * std::ldexp(1.0, -8);
  const double allowed =
      2 * (reference(type) - exact).abs().max().item<double>() + roundings * (exact.abs().max().item<double>() + 0.01);
  contender.max_error = (contender.run(problem).to(at::kDouble) - exact).abs().max().item<double>();
  require(contender.max_error <= allowed,
          "bench: {} computes a wrong output: off by {:.3g}, rounding explains {:.3g}; no speed is reported", method,
          contender.max_error, allowed);
  return contender;
}

}  // namespace

std::vector<std::string> decode_bench_methods() {
  return {"full", "focus", "sdpa"};
}

std::vector<json> run_decode_bench(const AttentionBenchOptions& options, const MachinePeaks& peaks,
                                   const std::function<bool()>& keep_going) {
  check_bench_options(options);
  const at::ScalarType dtype = options.dtype == "bfloat16"  ? at::kBFloat16
                               : options.dtype == "float16" ? at::kHalf
                                                            : at::kFloat;
  std::vector<json> lines;
  for (const int64_t length : options.lengths) {
    log_info("decode, {} tokens: checking and timing", length);
    const DecodeProblem problem = make_problem(options, length, dtype);
    std::vector<Contender> contenders;
    std::vector<std::function<void()>> work;
    for (const std::string& method : options.methods) {
      contenders.push_back(make_contender(method, problem));
      work.push_back([&problem, run = contenders.back().run] { run(problem); });
    }
    bool whole = true;
    const std::vector<Timing> times =
        time_alternating(work, options.repeats, kMinSampleMs, options.clock, [&] { return whole = keep_going(); });
    if (!whole) break;
    for (size_t c = 0; c < contenders.size(); ++c) {
      const double bytes = 2.0 * contenders[c].keys * static_cast<double>(options.head_dim * elementSize(dtype));
      const double rate = bytes / times[c].median * 1e-6;
      json line = {{"bench", "decode"},
                   {"method", contenders[c].method},
                   {"length", length},
                   {"batch", options.batch},
                   {"heads", options.heads},
                   {"kv_heads", options.kv_heads},
                   {"head_dim", options.head_dim},
                   {"dtype", options.dtype},
                   {"isa", contenders[c].method == "sdpa" ? at::get_cpu_capability() : kernels::cpu::instruction_set()},
                   {"threads", at::get_num_threads()},
                   {"clock", options.clock == BenchClock::kCpu ? "cpu" : "wall"},
                   {"ms_median", times[c].median},
                   {"ms_min", times[c].min},
                   {"ms_max", times[c].max},
                   {"pairs_kept", contenders[c].keys / static_cast<double>(options.batch * options.kv_heads * length)},
                   {"gbytes_s", rate},
                   {"peak_gbytes_s", peaks.read_gbytes_s},
                   {"share_of_bandwidth", rate / peaks.read_gbytes_s},
                   {"ratio_to", json::object()},
                   {"max_error", contenders[c].max_error},
                   {"commit", build_commit()},
                   {"cpu", cpu_name()}};
      for (size_t other = 0; other < contenders.size(); ++other) {
        if (other != c) line["ratio_to"][contenders[other].method] = times[other].median / times[c].median;
      }
      if (contenders[c].method == "focus") {
        line["groups"] = options.groups;
        line["groups_per_token"] = options.groups_per_token;
        line["window"] = options.window;
        line["sinks"] = options.sinks;
        line["skew"] = options.skew;
        line["symmetric"] = options.symmetric;
      }
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

}  // namespace focus
