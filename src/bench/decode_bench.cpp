#include "bench/decode_bench.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/decode.h"
#include "attention/methods/list_cache.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "bench/bench_line.h"
#include "bench/cache_size.h"
#include "bench/gate.h"
#include "bench/random_lists.h"
#include "weights/dtype.h"

namespace focus {

namespace {

using nlohmann::json;

constexpr double kMinSampleMs = 20.0;

// So many queries take turns, each with probes of its own.
constexpr int64_t kQueries = 16;
// What is read between two uses of the same keys, as a multiple of the last cache before memory.
constexpr double kCacheMultiple = 2.0;
constexpr int64_t kMostBytes = int64_t{2} << 30;

// Caches of `length` tokens each, and queries of their last token.
struct DecodeProblem {
  at::Tensor q;                                    // [B, Hq, 1, D]
  std::vector<std::unique_ptr<ListCache>> caches;  // all of the same content
  std::vector<at::Tensor> probes;                  // int32 [B, Hg, slots] of each query
  int64_t window = 0;
  double scale = 1.0;

  int64_t length() const { return caches.front()->length(); }
  int64_t sets() const { return probes.front().size(1); }
  int64_t kv_heads() const { return caches.front()->keys().size(1); }
};

// One step of decoding: a cache, and which lists the query probes.
struct Turn {
  const ListCache& cache;
  const at::Tensor& probes;
};

DecodeProblem make_problem(const AttentionBenchOptions& options, int64_t length) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(options.seed));
  const auto draw = [&](int64_t heads, int64_t tokens) {
    return at::randn({options.batch, heads, tokens, options.head_dim}, generator, at::TensorOptions())
        .to(options.dtype);
  };
  const AttentionParams lists =
      random_lists({options.batch, options.kv_heads, length, options.groups, options.groups_per_token, options.sinks,
                    options.skew, probe_choice(options), options.symmetric, static_cast<uint64_t>(options.seed)});
  DecodeProblem problem;
  problem.q = draw(options.heads, 1);
  problem.caches.push_back(std::make_unique<ListCache>(options.batch, length));
  problem.caches.front()->append(draw(options.kv_heads, length), draw(options.kv_heads, length), *lists.key_group);
  for (int64_t i = 0; i < std::min(kQueries, length); ++i) {
    problem.probes.push_back(lists.probes->select(2, length - 1 - i).contiguous());
  }
  problem.window = options.window;
  problem.scale = 1.0 / std::sqrt(static_cast<double>(options.head_dim));
  return problem;
}

// Copies of the cache, as many as it takes for a turn around them to read kCacheMultiple of the last cache before
// memory, but no more than fit kMostBytes and a quarter of what is free.
void add_caches(DecodeProblem& problem, double least_bytes_read) {
  const ListCache& first = *problem.caches.front();
  const double wanted = std::ceil(kCacheMultiple * static_cast<double>(last_level_cache_bytes()) / least_bytes_read);
  const int64_t free = available_memory();
  const int64_t room = std::min(kMostBytes, free > 0 ? free / 4 : kMostBytes) / std::max<int64_t>(first.bytes(), 1);
  const auto caches = static_cast<int64_t>(std::min(wanted, static_cast<double>(room)));
  while (std::ssize(problem.caches) < caches) {
    problem.caches.push_back(std::make_unique<ListCache>(problem.q.size(0), problem.length()));
    problem.caches.back()->append(first.keys(), first.values(), first.key_group());
  }
}

std::vector<KeyChoice> choose(const DecodeProblem& problem, const Turn& turn) {
  std::vector<KeyChoice> chosen;
  const int64_t slots = turn.probes.size(2);
  const int32_t* probes = turn.probes.const_data_ptr<int32_t>();
  const int64_t i = problem.length() - 1;
  for (int64_t b = 0; b < turn.probes.size(0); ++b) {
    for (int64_t s = 0; s < problem.sets(); ++s, probes += slots) {
      chosen.push_back(turn.cache.choose(b, s, probes, slots, 0, std::max<int64_t>(0, i - problem.window)));
    }
  }
  return chosen;
}

at::Tensor run_focus(const DecodeProblem& problem, const Turn& turn) {
  return decode_attention(problem.q, turn.cache.keys(), turn.cache.values(), choose(problem, turn), problem.sets(),
                          problem.scale, 0.0);
}

at::Tensor run_full(const DecodeProblem& problem, const Turn& turn) {
  const std::vector<KeyChoice> all(static_cast<size_t>(problem.q.size(0)), KeyChoice{{}, 0, problem.length()});
  return decode_attention(problem.q, turn.cache.keys(), turn.cache.values(), all, 1, problem.scale, 0.0);
}

at::Tensor run_sdpa(const DecodeProblem& problem, const Turn& turn) {
  const int64_t kv_heads = problem.kv_heads();
  const at::Tensor rows =
      problem.q.reshape({problem.q.size(0), kv_heads, problem.q.size(1) / kv_heads, problem.q.size(3)});
  return at::scaled_dot_product_attention(rows, turn.cache.keys(), turn.cache.values(), {}, 0.0, false, problem.scale)
      .reshape(problem.q.sizes());
}

struct Contender {
  std::string method;
  at::Tensor (*run)(const DecodeProblem&, const Turn&);
  double keys = 0;  // read, of all KV heads, on average over the queries
  double max_error = 0;
  int64_t turns = 0;

  // The next cache each time and, once around, the next query.
  void step(const DecodeProblem& problem) {
    const auto turn = static_cast<size_t>(turns++);
    const size_t caches = problem.caches.size();
    run(problem, {*problem.caches[turn % caches], problem.probes[turn / caches % problem.probes.size()]});
  }
};

// Compares the output for one query with the reference.
double check(const DecodeProblem& problem, const Contender& contender, const Turn& turn) {
  AttentionParams params;
  params.scale = problem.scale;
  if (contender.method == "focus") {
    params.key_group = turn.cache.key_group();
    params.probes = turn.probes.unsqueeze(2);
    params.window = problem.window;
  }
  const auto reference = [&](at::ScalarType type) {
    return std::get<0>(reference_attention(problem.q.to(type), turn.cache.keys().to(type), turn.cache.values().to(type),
                                           params))
        .to(at::kDouble);
  };
  const at::Tensor exact = reference(at::kDouble);
  const at::ScalarType type = problem.q.scalar_type();
  const double allowed = 2 * (reference(type) - exact).abs().max().item<double>() +
                         4 * epsilon(type) * (exact.abs().max().item<double>() + 0.01);
  const double error = (contender.run(problem, turn).to(at::kDouble) - exact).abs().max().item<double>();
  require(error <= allowed,
          "bench: {} computes a wrong output: off by {:.3g}, rounding explains {:.3g}; no speed is reported",
          contender.method, error, allowed);
  return error;
}

Contender make_contender(const std::string& method, const DecodeProblem& problem) {
  Contender contender;
  contender.method = method;
  contender.run = method == "focus" ? run_focus : method == "full" ? run_full : run_sdpa;
  const ListCache& cache = *problem.caches.front();
  const auto kv_heads = static_cast<double>(problem.kv_heads());
  if (method != "focus") {
    contender.keys = static_cast<double>(problem.q.size(0) * problem.length()) * kv_heads;
    contender.max_error = check(problem, contender, {cache, problem.probes.front()});
    return contender;
  }
  for (const at::Tensor& probes : problem.probes) {
    const Turn turn{cache, probes};
    for (const KeyChoice& choice : choose(problem, turn)) contender.keys += static_cast<double>(choice.count());
    contender.max_error = std::max(contender.max_error, check(problem, contender, turn));
  }
  contender.keys *= kv_heads / static_cast<double>(problem.sets() * std::ssize(problem.probes));
  return contender;
}

}  // namespace

std::vector<std::string> decode_bench_methods() {
  return {"full", "focus", "sdpa"};
}

std::vector<json> run_decode_bench(const AttentionBenchOptions& options, const MachinePeaks& peaks,
                                   const std::function<bool()>& keep_going) {
  check_bench_options(options);
  const double key_bytes = 2.0 * static_cast<double>(options.head_dim * elementSize(options.dtype));
  std::vector<json> lines;
  for (const int64_t length : options.lengths) {
    log_info("decode, {} tokens: checking and timing", length);
    DecodeProblem problem = make_problem(options, length);
    std::vector<Contender> contenders;
    for (const std::string& method : options.methods) contenders.push_back(make_contender(method, problem));
    std::vector<std::function<void()>> work;
    double least = std::numeric_limits<double>::infinity();
    for (Contender& contender : contenders) {
      least = std::min(least, contender.keys * key_bytes);
      work.push_back([&problem, &contender] { contender.step(problem); });
    }
    add_caches(problem, least);
    bool whole = true;
    const std::vector<Timing> times =
        time_alternating(work, options.repeats, kMinSampleMs, options.clock, [&] { return whole = keep_going(); });
    if (!whole) break;
    const size_t first = lines.size();
    for (size_t c = 0; c < contenders.size(); ++c) {
      const double bytes = contenders[c].keys * key_bytes;
      const double rate = bytes / times[c].median * 1e-6;
      json line = bench_line("decode", contenders[c].method, length, times[c], options.clock, contenders[c].max_error);
      line.update({{"batch", options.batch},
                   {"heads", options.heads},
                   {"kv_heads", options.kv_heads},
                   {"head_dim", options.head_dim},
                   {"dtype", dtype_name(options.dtype)},
                   {"pairs_kept", contenders[c].keys / static_cast<double>(options.batch * options.kv_heads * length)},
                   {"gbytes_s", rate},
                   {"peak_gbytes_s", peaks.read_gbytes_s},
                   {"share_of_bandwidth", rate / peaks.read_gbytes_s},
                   {"caches", problem.caches.size()},
                   {"reuse_bytes", bytes * static_cast<double>(problem.caches.size())},
                   {"llc_bytes", last_level_cache_bytes()}});
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
    add_ratios(lines, first);
  }
  return lines;
}

}  // namespace focus
