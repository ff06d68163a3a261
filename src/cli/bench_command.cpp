#include "cli/bench_command.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "bench/attention_bench.h"
#include "bench/bench_line.h"
#include "bench/decode_bench.h"
#include "cli/bench_model.h"
#include "cli/device.h"
#include "cli/output.h"

namespace focus {

namespace {

std::vector<std::string> all_methods() {
  std::vector<std::string> names = attention_bench_methods();
  for (std::string& name : ModelBench::methods()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

class BenchCommand : public Command {
 public:
  void declare(OptionTable& table) override {
    common_.declare(table, kAdapterFlag | kRopeFlag | kSeedFlag | kWeightsFlag);
    table.section("What to measure");
    table
        .add_positional("what", &what_,
                        "attention: the op over a whole sequence; decode: the op for one token behind a cache that is "
                        "read from memory; with --model prefill: a model that reads a text, decode: one that goes on "
                        "token by token, train: "
                        "one that is trained")
        .one_of({"attention", "prefill", "decode", "train"})
        .required();
    AttentionBenchOptions& o = attention_;
    table.add("methods", &o.methods, "what is compared; transformers runs in a Python process beside")
        .one_of(all_methods())
        .default_text("full,focus,sdpa; of a model full,transformers, with --adapter focus too");
    table.add("lengths", &o.lengths, "tokens of a sequence").at_least(1).at_most(1 << 24);
    table.add("repeats", &o.repeats, "rounds; the median counts").at_least(1).default_text("5; of a model 3");
    model_.declare(table);
    table.section("The op");
    table.add("batch", &o.batch, "sequences at once").at_least(1).at_most(4096);
    table.add("heads", &o.heads, "query heads").at_least(1).at_most(4096);
    table.add("kv-heads", &kv_heads_, "key and value heads").at_least(1).default_text("those of the queries");
    table.add("head-dim", &o.head_dim, "size of a head").at_least(1).at_most(1024);
    table.add("dtype", &common_.dtype, "type of q, k and v; of a model, convert its weights to it")
        .one_of({"float32", "bfloat16", "float16"})
        .default_text("float32; of a model as stored");
    table.add("backward", &o.backward, "time the gradients too");
    table.add("routing", &o.routing, "time a router that gives such lists, on hidden states as wide as all heads");
    table.add_choice("clock", &o.clock, {{"wall", BenchClock::kWall}, {"cpu", BenchClock::kCpu}},
                     "wall time, or with one thread its CPU time, for a machine that is busy with other work");
    table
        .add("dense-limit", &o.dense_limit,
             "beyond this length dense attention is timed on sampled rows and extrapolated")
        .at_least(4096);
    table.section("Lists, drawn at random");
    table.add("groups", &o.groups, "lists a head (K)").value_name("K").at_least(1).at_most(4095);
    table.add("groups-per-token", &o.groups_per_token, "lists that a query probes")
        .value_name("P")
        .at_least(1)
        .at_most(4095);
    table.add("window", &o.window, "tokens at most this far back are always attended").value_name("W").at_least(0);
    table.add("sinks", &o.sinks, "first tokens that all attend").at_least(0).at_most(4096);
    table.add("skew", &o.skew, "largest list as a multiple of the mean").at_least(1);
    table
        .add("probes", &o.probes,
             "lists of a query: its own, any with the same chance, or in proportion to their size; auto: own if "
             "groups-per-token is 1, else proportional")
        .one_of({"auto", "own", "uniform", "proportional"});
    table.add("symmetric", &o.symmetric, "the paper's form: a token joins groups-per-token groups on both sides");
  }

  int run(const RunContext& run) override {
    if (!run.device.is_cpu()) fail_usage("bench --device {}: it measures the CPU", run.device.str());
    const bool decode = what_ == "decode";
    if (what_ == "prefill" || what_ == "train" || (decode && model_.has_model())) return run_model(run);
    for (const std::string& flag : ModelBench::flags()) {
      if (run.options.changed(flag))
        fail_usage("bench {}: --{} belongs to bench prefill|decode|train --model", what_, flag);
    }
    check_methods(decode ? decode_bench_methods() : attention_bench_methods());
    if (decode) check_decode(run.options);
    check_lists(run.options);
    attention_.dtype = parse_dtype(common_.dtype).value_or(at::kFloat);
    attention_.kv_heads = kv_heads_.value_or(attention_.heads);
    attention_.seed = common_.seed;
    check_bench_options(attention_);
    const InterruptGuard guard;
    const MachinePeaks peaks = measure_peaks(attention_.clock);
    if (!common_.json) {
      write_output(fmt::format("peak {:.1f} GFLOP/s float32, reading {:.1f} GB/s; {}\n", peaks.fma_gflops,
                               peaks.read_gbytes_s, cpu_name()));
    }
    const auto keep_going = [] { return !interrupted(); };
    const auto lines =
        decode ? run_decode_bench(attention_, peaks, keep_going) : run_attention_bench(attention_, peaks, keep_going);
    if (!common_.json) write_output(decode ? decode_heading() : heading());
    for (const nlohmann::json& line : lines) {
      if (common_.json) {
        write_json_line(line);
      } else {
        write_output(decode ? decode_row(line) : row(line));
      }
    }
    if (!interrupted()) return 0;
    log_warning("interrupted: the remaining lengths were left out");
    return 1;
  }

 private:
  int run_model(const RunContext& run) {
    return model_.run(run, common_,
                      {what_, attention_.methods, attention_.lengths, attention_.repeats, attention_.groups_per_token,
                       attention_.window, attention_.sinks});
  }

  void check_methods(const std::vector<std::string>& known) const {
    for (const std::string& method : attention_.methods) {
      if (std::find(known.begin(), known.end(), method) == known.end()) {
        fail_usage("bench {}: no method {}; known: {}", what_, method, fmt::join(known, ", "));
      }
    }
  }

  void check_lists(const OptionTable& table) const {
    const auto named = [&](const char* method) {
      return std::find(attention_.methods.begin(), attention_.methods.end(), method) != attention_.methods.end();
    };
    if (named("focus")) return;
    for (const char* flag : {"groups", "groups-per-token", "skew", "probes", "symmetric", "routing"}) {
      if (table.changed(flag)) fail_usage("bench {}: --{} belongs to --methods focus", what_, flag);
    }
    for (const char* flag : {"window", "sinks"}) {
      if (!named("window") && table.changed(flag)) {
        fail_usage("bench {}: --{} belongs to --methods focus and window", what_, flag);
      }
    }
  }

  void check_decode(const OptionTable& table) const {
    for (const char* flag : {"backward", "routing", "dense-limit"}) {
      if (table.changed(flag)) fail_usage("bench decode: --{} belongs to bench attention", flag);
    }
  }

  static std::string decode_heading() {
    return fmt::format("{:>8} {:<7} {:>11} {:>11} {:>11} {:>7} {:>8} {:>9} {:>9}  {}\n", "length", "method",
                       "ms median", "min", "max", "keys", "GB/s", "bandwidth", "error", "times faster than");
  }

  static std::string decode_row(const nlohmann::json& line) {
    return fmt::format("{:>8} {:<7} {:>11.4f} {:>11.4f} {:>11.4f} {:>6.2f}% {:>8.2f} {:>8.1f}% {:>9.1e}  {}\n",
                       line["length"].get<int64_t>(), line["method"].get<std::string>(),
                       line["ms_median"].get<double>(), line["ms_min"].get<double>(), line["ms_max"].get<double>(),
                       100 * line["pairs_kept"].get<double>(), line["gbytes_s"].get<double>(),
                       100 * line["share_of_bandwidth"].get<double>(), line["max_error"].get<double>(),
                       ratio_text(line));
  }

  static std::string heading() {
    return fmt::format("{:>8} {:<7} {:<17} {:>11} {:>11} {:>11} {:>7} {:>9} {:>7} {:>9}  {}\n", "length", "method",
                       "pass", "ms median", "min", "max", "pairs", "GFLOP/s", "ideal", "error", "times faster than");
  }

  static std::string row(const nlohmann::json& line) {
    const std::string share =
        line.contains("share_of_ideal") ? fmt::format("{:.1f}%", 100 * line["share_of_ideal"].get<double>()) : "";
    std::string text =
        fmt::format("{:>8} {:<7} {:<17} {:>11.3f} {:>11.3f} {:>11.3f} {:>6.2f}% {:>9.1f} {:>7} {:>9.1e}  {}",
                    line["length"].get<int64_t>(), line["method"].get<std::string>(), line["pass"].get<std::string>(),
                    line["ms_median"].get<double>(), line["ms_min"].get<double>(), line["ms_max"].get<double>(),
                    100 * line["pairs_kept"].get<double>(), line["gflops"].get<double>(), share,
                    line["max_error"].get<double>(), ratio_text(line));
    if (line["extrapolated"].get<bool>()) text += " (extrapolated)";
    if (line.contains("routing_share")) {
      text += fmt::format(" (routing {:.1f}% of it)", 100 * line["routing_share"].get<double>());
    }
    return text + "\n";
  }

  std::string what_;
  AttentionBenchOptions attention_;
  ModelBench model_;
  std::optional<int64_t> kv_heads_;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() {
  return std::make_unique<BenchCommand>();
}

}  // namespace focus
