#include "bench/attention_bench.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "attention/routing/router.h"
#include "base/error.h"
#include "base/log.h"
#include "bench/bench_line.h"
#include "bench/gate.h"
#include "bench/random_lists.h"
#include "bench/timing.h"
#include "weights/dtype.h"

namespace focus {

namespace {

using nlohmann::json;

constexpr double kMinSampleMs = 30.0;
constexpr int64_t kSampleRows = 384;  // rows of a sampled tile of dense attention
constexpr int64_t kSampleTiles = 6;

at::Tensor run_op(const BenchProblem& problem) {
  return std::get<0>(attention(problem.q, problem.k, problem.v, problem.params));
}

at::Tensor run_sdpa(const BenchProblem& problem) {
  return at::scaled_dot_product_attention(problem.q, problem.k, problem.v, {}, 0.0, true, problem.params.scale,
                                          problem.q.size(1) != problem.k.size(1));
}

// The rows of a sampled tile meet all keys before the last of them, without a mask: the nearest that the fused dense
// attention of ATen offers.
at::Tensor run_sdpa_tile(const BenchProblem& problem) {
  return at::scaled_dot_product_attention(problem.q, problem.k, problem.v, {}, 0.0, false, problem.params.scale,
                                          problem.q.size(1) != problem.k.size(1));
}

// One method at one length.
struct Contender {
  std::string method;
  BenchProblem problem;
  AttentionRun run;
  bool dense = false;
  int64_t pairs = 0;  // of all heads
  double max_error = 0.0;
  double extrapolation = 1;  // whole work / timed work
  at::Tensor out;            // of a pass with gradients, kept for the backward pass
  Timing forward, backward;
  int64_t extra_bytes = -1;
};

class AttentionBench {
 public:
  AttentionBench(const AttentionBenchOptions& options, const MachinePeaks& peaks)
      : options_(options), peaks_(peaks), dtype_(options.dtype) {}

  // The contenders at one length, gated and timed; empty when interrupted.
  std::vector<Contender> measure(int64_t length, const std::function<bool()>& keep_going) {
    std::vector<Contender> contenders;
    for (const std::string& method : options_.methods) {
      log_info("attention, {} tokens, {}: checking against the reference", length, method);
      contenders.push_back(make(method, length));
      if (!keep_going()) return {};
    }
    log_info("attention, {} tokens: timing", length);
    std::vector<std::function<void()>> work;
    for (Contender& contender : contenders) work.push_back([&] { forward(contender); });
    if (options_.backward) {
      for (Contender& contender : contenders) {
        if (!contender.out.defined()) record(contender);
        work.push_back([&] { differentiate(contender); });
      }
    }
    bool whole = true;
    const std::vector<Timing> times =
        time_alternating(work, options_.repeats, kMinSampleMs, options_.clock, [&] { return whole = keep_going(); });
    if (!whole) return {};
    for (size_t c = 0; c < contenders.size(); ++c) {
      contenders[c].forward = times[c].scaled(contenders[c].extrapolation);
      if (options_.backward) contenders[c].backward = times[contenders.size() + c];
    }
    if (options_.routing) time_router(length, keep_going);
    return contenders;
  }

  void lines(int64_t length, const std::vector<Contender>& contenders, std::vector<json>& result) const {
    const size_t first = result.size();
    for (const Contender& contender : contenders) {
      result.push_back(line(length, contender, "forward", 4.0, contender.forward));
      if (!options_.backward) continue;
      result.push_back(line(length, contender, "backward", 10.0, contender.backward));
      result.push_back(line(length, contender, "forward+backward", 14.0, contender.forward + contender.backward));
    }
    add_ratios(result, first);
  }

 private:
  BenchProblem problem(int64_t length) const {
    at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(options_.seed));
    const auto draw = [&](int64_t heads) {
      return at::randn({options_.batch, heads, length, options_.head_dim}, generator, at::TensorOptions()).to(dtype_);
    };
    BenchProblem result{draw(options_.heads), draw(options_.kv_heads), draw(options_.kv_heads), {}};
    result.params.scale = 1.0 / std::sqrt(static_cast<double>(options_.head_dim));
    return result;
  }

  Contender make(const std::string& method, int64_t length) const {
    Contender contender;
    contender.method = method;
    contender.problem = problem(length);
    contender.run = method == "sdpa" ? run_sdpa : run_op;
    contender.dense = method == "sdpa" || method == "full";
    AttentionParams& params = contender.problem.params;
    if (!contender.dense) {
      const AttentionParams lists = random_lists(
          {options_.batch, options_.kv_heads, length, options_.groups, options_.groups_per_token, options_.sinks,
           options_.skew, probe_choice(options_), options_.symmetric, static_cast<uint64_t>(options_.seed)});
      params.key_group = lists.key_group;
      params.probes = method == "window" ? lists.probes->narrow(3, 0, 1) : *lists.probes;
      params.window = options_.window;
    }
    const PairCount count = count_pairs(options_.batch, length, length, params);
    contender.pairs = count.kept * options_.heads / (params.key_group ? params.key_group->size(1) : 1);
    if (contender.dense && length > options_.dense_limit) {
      contender.max_error = sample_tiles(contender);
    } else {
      contender.max_error = check_attention_run(method, contender.problem, contender.run, options_.backward);
      const int64_t results = contender.problem.q.nbytes() + contender.problem.q.numel() / options_.head_dim * 4;
      const int64_t bytes = peak_extra_bytes([&] { forward(contender); });
      contender.extra_bytes = bytes < 0 ? bytes : std::max<int64_t>(0, bytes - results);
    }
    return contender;
  }

  // Puts tiles of rows, evenly spread, in place of the whole problem.
  double sample_tiles(Contender& contender) const {
    std::vector<BenchProblem> tiles;
    const int64_t length = contender.problem.length();
    double pairs = 0;
    for (int64_t t = 0; t < kSampleTiles; ++t) {
      const int64_t last = (2 * t + 1) * length / (2 * kSampleTiles) + kSampleRows / 2;
      tiles.push_back(contender.problem.rows(last - kSampleRows, last));
      pairs += static_cast<double>(options_.batch * options_.heads * kSampleRows) *
               (static_cast<double>(last) - (kSampleRows - 1) / 2.0);
    }
    contender.extrapolation = static_cast<double>(contender.pairs) / pairs;
    const bool masked = contender.method != "sdpa";
    contender.run = [tiles, masked](const BenchProblem&) {
      at::Tensor out;
      for (const BenchProblem& tile : tiles) out = masked ? run_op(tile) : run_sdpa_tile(tile);
      return out;
    };
    // The gate at a length that is timed whole covers the method; here the last rows of each tile are compared.
    double largest = 0;
    for (const BenchProblem& tile : tiles) largest = std::max(largest, check_tile(contender.method, tile));
    return largest;
  }

  // The largest error of the last rows of a tile of dense attention.
  double check_tile(const std::string& method, const BenchProblem& tile) const {
    const int64_t rows = 8;
    const BenchProblem tail{tile.q.slice(2, kSampleRows - rows), tile.k, tile.v, tile.params};
    const bool masked = method != "sdpa";
    const auto reference = [&](at::ScalarType type) {
      const at::Tensor q = tail.q.to(type), k = tail.k.to(type), v = tail.v.to(type);
      if (masked) return std::get<0>(reference_attention(q, k, v, tail.params)).to(at::kDouble);
      const int64_t copies = q.size(1) / k.size(1);
      const at::Tensor scores = at::matmul(q, k.repeat_interleave(copies, 1).transpose(-2, -1)) * tail.params.scale;
      const at::Tensor weights = at::softmax(scores.to(at::kDouble), -1).to(type);
      return at::matmul(weights, v.repeat_interleave(copies, 1)).to(at::kDouble);
    };
    const at::Tensor exact = reference(at::kDouble);
    const double error =
        ((masked ? run_op(tail) : run_sdpa_tile(tail)).to(at::kDouble) - exact).abs().max().item<double>();
    const double allowed = 2 * (reference(dtype_) - exact).abs().max().item<double>() +
                           4 * epsilon(dtype_) * exact.abs().max().item<double>() + 1e-6;
    require(error <= allowed,
            "bench: {} computes a wrong output: off by {:.3g}, rounding explains {:.3g}; no speed is reported", method,
            error, allowed);
    return error;
  }

  static void forward(const Contender& contender) { contender.run(contender.problem); }

  static void record(Contender& contender) {
    for (at::Tensor* x : {&contender.problem.q, &contender.problem.k, &contender.problem.v}) x->requires_grad_();
    contender.out = contender.run(contender.problem);
  }

  static void differentiate(const Contender& contender) {
    const BenchProblem& p = contender.problem;
    torch::autograd::grad({contender.out}, {p.q, p.k, p.v}, {at::ones_like(contender.out)}, true);
  }

  void time_router(int64_t length, const std::function<bool()>& keep_going) {
    RoutingConfig config;
    config.groups = options_.groups;
    config.groups_per_token = options_.groups_per_token;
    config.symmetric = options_.symmetric;
    const int64_t width = options_.heads * options_.head_dim;
    LayerRouter layer;
    for (const auto& [name, shape] : LayerRouter::layout(config, width, options_.kv_heads)) {
      // As many probes for every head.
      layer.tensor(name) = name == "probe_exponent" ? at::ones(shape) : at::randn(shape);
    }
    const Router router(config, {{0, layer}});
    const at::Tensor hidden = at::randn({options_.batch, length, width}).to(dtype_);
    const at::Tensor position = at::arange(length, at::kLong).expand({options_.batch, length}).contiguous();
    routing_[length] = time_alternating({[&] { router.route(0, hidden, position); }}, options_.repeats, kMinSampleMs,
                                        options_.clock, keep_going)[0];
  }

  json line(int64_t length, const Contender& contender, const char* pass, double operations, const Timing& time) const {
    const double causal = static_cast<double>(options_.batch * options_.heads) * static_cast<double>(length) *
                          static_cast<double>(length + 1) / 2.0;
    json result = bench_line("attention", contender.method, length, time, options_.clock, contender.max_error);
    result.update(
        {{"pass", pass},
         {"batch", options_.batch},
         {"heads", options_.heads},
         {"kv_heads", options_.kv_heads},
         {"head_dim", options_.head_dim},
         {"dtype", dtype_name(options_.dtype)},
         {"pairs_kept", static_cast<double>(contender.pairs) / causal},
         {"gflops", operations * static_cast<double>(contender.pairs * options_.head_dim) / time.median * 1e-6},
         {"peak_gflops", peaks_.fma_gflops},
         {"extrapolated", contender.extrapolation != 1}});
    if (contender.extra_bytes >= 0 && std::string(pass) == "forward") result["extra_bytes"] = contender.extra_bytes;
    if (contender.dense) return result;
    result["groups"] = options_.groups;
    result["groups_per_token"] = options_.groups_per_token;
    result["window"] = options_.window;
    result["sinks"] = options_.sinks;
    result["skew"] = options_.skew;
    result["symmetric"] = options_.symmetric;
    const auto routing = routing_.find(length);
    if (routing != routing_.end() && contender.method == "focus" && std::string(pass) == "forward") {
      result["routing_ms"] = routing->second.median;
      result["routing_share"] = routing->second.median / time.median;
    }
    return result;
  }

  const AttentionBenchOptions& options_;
  const MachinePeaks& peaks_;
  at::ScalarType dtype_;
  std::map<int64_t, Timing> routing_;
};

// share_of_ideal: useful rate against the best of our own dense kernel in this run, pass by pass.
void add_shares(std::vector<json>& lines) {
  std::map<std::string, double> best;
  for (const json& line : lines) {
    if (line["method"] != "full") continue;
    double& rate = best[line["pass"].get<std::string>()];
    rate = std::max(rate, line["gflops"].get<double>());
  }
  for (json& line : lines) {
    const auto found = best.find(line["pass"].get<std::string>());
    if (found != best.end()) line["share_of_ideal"] = line["gflops"].get<double>() / found->second;
  }
}

}  // namespace

ProbeChoice probe_choice(const AttentionBenchOptions& options) {
  if (options.probes == "uniform") return ProbeChoice::kUniform;
  if (options.probes == "proportional") return ProbeChoice::kProportional;
  if (options.probes == "auto" && options.groups_per_token > 1) return ProbeChoice::kProportional;
  return ProbeChoice::kOwn;
}

void check_bench_options(const AttentionBenchOptions& options) {
  if (options.heads % options.kv_heads != 0) {
    fail_usage("--heads {}: expected a multiple of --kv-heads, {}", options.heads, options.kv_heads);
  }
  if (options.groups_per_token > options.groups) {
    fail_usage("--groups-per-token {}: expected at most the number of groups, {}", options.groups_per_token,
               options.groups);
  }
  if (options.probes == "own" && options.groups_per_token > 1) {
    fail_usage("--probes own: a query has one list of its own, but --groups-per-token is {}", options.groups_per_token);
  }
  if (options.symmetric && options.probes != "auto") {
    fail_usage("--probes {}: with --symmetric a query probes the lists that share a group with it", options.probes);
  }
  if (options.clock == BenchClock::kCpu && at::get_num_threads() > 1) {
    fail_usage("--clock cpu: expected --threads 1, not {}", at::get_num_threads());
  }
  const auto longest = std::max_element(options.lengths.begin(), options.lengths.end());
  if (options.backward && longest != options.lengths.end() && *longest > options.dense_limit) {
    fail_usage("--backward: the length {} is beyond --dense-limit {}, where dense attention is extrapolated", *longest,
               options.dense_limit);
  }
}

std::vector<std::string> attention_bench_methods() {
  return {"full", "focus", "window", "sdpa"};
}

std::vector<json> run_attention_bench(const AttentionBenchOptions& options, const MachinePeaks& peaks,
                                      const std::function<bool()>& keep_going) {
  check_bench_options(options);
  AttentionBench bench(options, peaks);
  std::vector<json> lines;
  for (const int64_t length : options.lengths) {
    const std::vector<Contender> contenders = bench.measure(length, keep_going);
    if (contenders.empty()) break;
    bench.lines(length, contenders, lines);
  }
  add_shares(lines);
  return lines;
}

}  // namespace focus
