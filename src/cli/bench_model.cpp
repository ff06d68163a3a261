#include "cli/bench_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "attention/routing/adapter.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "bench/bench_line.h"
#include "cli/device.h"
#include "cli/output.h"
#include "models/rope_scaling.h"
#include "weights/dtype.h"

namespace focus {

namespace {

/// Tolerances of logits over the largest one: of whole models, in which the roundings of every layer add up and one can
/// move a token to another list.
constexpr double kFloatTolerance = 1e-3;
constexpr double kHalfTolerance = 0.1;

std::string heading() {
  return fmt::format("{:>8} {:<13} {:>11} {:>11} {:>11} {:>10} {:>7} {:>9} {:>9} {:>9}  {}\n", "length", "method",
                     "ms median", "min", "max", "tokens/s", "pairs", "attention", "cache MB", "error",
                     "times faster than");
}

std::string row(const nlohmann::json& line) {
  const auto figure = [&](const char* key, double factor, const char* unit) {
    return line.contains(key) ? fmt::format("{:.1f}{}", factor * line[key].get<double>(), unit) : std::string();
  };
  return fmt::format("{:>8} {:<13} {:>11.2f} {:>11.2f} {:>11.2f} {:>10.1f} {:>7} {:>9} {:>9} {:>9.1e}  {}\n",
                     line["length"].get<int64_t>(), line["method"].get<std::string>(), line["ms_median"].get<double>(),
                     line["ms_min"].get<double>(), line["ms_max"].get<double>(), line["tokens_per_s"].get<double>(),
                     figure("pairs_kept", 100, "%"), figure("attention_share", 100, "%"),
                     figure("cache_bytes", 1e-6, ""), line["max_error"].get<double>(), ratio_text(line));
}

}  // namespace

std::vector<std::string> ModelBench::methods() {
  return {"full", "focus", "window", "random-groups", "transformers"};
}

std::vector<std::string> ModelBench::flags() {
  return {"model",   "adapter",    "force",         "rope-scaling", "weights",
          "data",    "new-tokens", "prefill-chunk", "cache-dtype",  "activation-checkpointing",
          "autocast"};
}

void ModelBench::declare(OptionTable& table) {
  table.section("A whole model");
  table.add("model", &model_, "folder of the model in Hugging Face form").value_name("DIR");
  table.add("data", &data_, "text to read, the longest document of it: .txt or .jsonl, also .gz, or a folder")
      .value_name("FILE|DIR");
  table.add("new-tokens", &bench_.new_tokens, "tokens of a sample of decoding").at_least(1);
  table.add("prefill-chunk", &runner_.prefill_chunk, "prompt tokens processed at a time").at_least(1);
  table.add("cache-dtype", &cache_dtype_, "keep keys and values in this type")
      .one_of({"float32", "bfloat16", "float16"})
      .default_text("the model's");
  table.add("activation-checkpointing", &train_.activation_checkpointing,
            "of train: keep only the input of each block and compute the rest again");
  table.add("autocast", &autocast_, "of train: type of matrix products").one_of({"none", "bfloat16"});
}

void ModelBench::check(const OptionTable& table, const CommonOptions& common, Shared& shared) const {
  for (const char* flag : {"batch", "heads", "kv-heads", "head-dim", "backward", "routing", "dense-limit", "clock",
                           "groups", "skew", "probes", "symmetric"}) {
    if (table.changed(flag)) fail_usage("bench {}: --{} belongs to the benchmarks of the op", shared.what, flag);
  }
  if (!model_ || !data_) fail_usage("bench {}: give --model and --data", shared.what);
  const auto refuse = [&](std::initializer_list<const char*> flags, const char* where) {
    for (const char* flag : flags) {
      if (table.changed(flag)) fail_usage("bench {}: --{} belongs to bench {}", shared.what, flag, where);
    }
  };
  const bool trains = shared.what == "train";
  if (shared.what != "decode") refuse({"new-tokens"}, "decode");
  if (trains) refuse({"prefill-chunk", "cache-dtype"}, "prefill|decode");
  if (!trains) refuse({"activation-checkpointing", "autocast"}, "train");
  if (!table.given("methods")) {
    shared.methods = {"full"};
    if (common.adapter) shared.methods.emplace_back("focus");
    if (!trains) shared.methods.emplace_back("transformers");
  }
  const std::vector<std::string> known = trains ? std::vector<std::string>{"full", "focus"} : methods();
  for (const std::string& method : shared.methods) {
    if (std::find(known.begin(), known.end(), method) == known.end()) {
      fail_usage("bench {}: no method {}; known: {}", shared.what, method, fmt::join(known, ", "));
    }
    if (method == "focus" && !common.adapter) {
      fail_usage("--methods focus needs --adapter: a folder made by focus train");
    }
  }
  const auto named = [&](const char* method) {
    return std::find(shared.methods.begin(), shared.methods.end(), method) != shared.methods.end();
  };
  if (!common.adapter && table.changed("force")) fail_usage("bench {}: --force belongs to --adapter", shared.what);
  const bool chooses = named("focus") || named("random-groups");
  if (!chooses && table.changed("groups-per-token")) {
    fail_usage("bench {}: --groups-per-token belongs to --methods focus and random-groups", shared.what);
  }
  for (const char* flag : {"window", "sinks"}) {
    if (!chooses && !named("window") && table.changed(flag)) {
      fail_usage("bench {}: --{} belongs to --methods focus, window and random-groups", shared.what, flag);
    }
  }
  if (named("transformers") && !named("full")) {
    fail_usage("--methods transformers needs full beside it, with which its logits are compared");
  }
}

MethodOptions ModelBench::method_options(const Session& session, const OptionTable& table, const CommonOptions& common,
                                         const Shared& shared) const {
  MethodOptions options;
  options.seed = static_cast<uint64_t>(common.seed);
  std::optional<Adapter> adapter;
  if (common.adapter) {
    adapter =
        load_adapter(*common.adapter, {.base_fingerprint = model_fingerprint(*session.model), .force = common.force});
    if (adapter->router != nullptr) options.routing = adapter->router->config();
    options.scales = adapter->scales;
    const bool used = std::any_of(shared.methods.begin(), shared.methods.end(), [&](const std::string& method) {
      return method != "transformers" && (method != "full" || adapter->scales != nullptr);
    });
    if (!used) {
      fail_usage("bench {}: --methods {} takes nothing from --adapter {}", shared.what, fmt::join(shared.methods, ","),
                 common.adapter->string());
    }
  }
  if (table.given("groups-per-token")) options.routing.groups_per_token = shared.groups_per_token;
  if (table.given("window")) options.routing.window = shared.window;
  if (table.given("sinks")) options.routing.sinks = shared.sinks;
  if (adapter && adapter->router != nullptr) {
    options.router = std::make_shared<Router>(adapter->router->with_config(options.routing));
  }
  return options;
}

std::vector<int32_t> ModelBench::read_text(const Session& session, const CommonOptions& common,
                                           const Shared& shared) const {
  const int64_t longest = *std::max_element(shared.lengths.begin(), shared.lengths.end()) + runner_.spare;
  const int64_t context = session.model->config().max_positions;
  if (longest > context) {
    fail_usage("--lengths: {} tokens with the new ones, but the model's context is {}; --rope-scaling stretches it",
               longest, context);
  }
  std::vector<Document> documents = read_documents(session.tokenizer, common);
  const auto shorter = [](const Document& a, const Document& b) { return a.size() < b.size(); };
  Document text = std::move(*std::max_element(documents.begin(), documents.end(), shorter));
  require(std::ssize(text) >= longest, "{}: the longest document has {} tokens, --lengths needs {}",
          common.data.string(), text.size(), longest);
  return text;
}

int ModelBench::run(const RunContext& run, CommonOptions common, Shared shared) {
  check(run.options, common, shared);
  if (shared.what == "train") return run_training(run, std::move(common), shared);
  common.model = *model_;
  common.data = *data_;
  const Session session = open_session(common, run.device);
  const at::ScalarType dtype = session.model->parameters().front().second.scalar_type();
  bench_.decode = shared.what == "decode";
  bench_.lengths = shared.lengths;
  if (run.options.given("repeats")) bench_.repeats = shared.repeats;
  runner_.cache_dtype = parse_dtype(cache_dtype_);
  runner_.spare = bench_.decode ? bench_.new_tokens : 0;
  const at::ScalarType cache_dtype = runner_.cache_dtype.value_or(dtype);
  bench_.tolerance = dtype == at::kFloat && cache_dtype == at::kFloat ? kFloatTolerance : kHalfTolerance;
  const std::vector<int32_t> text = read_text(session, common, shared);

  const MethodOptions options = method_options(session, run.options, common, shared);
  std::vector<std::unique_ptr<AttentionMethod>> methods;
  std::vector<std::unique_ptr<ModelRunner>> runners;
  for (const std::string& name : shared.methods) {
    if (name == "transformers") {
      std::optional<RopeScaling> scaling;
      if (common.rope_scaling) scaling = parse_rope_scaling(*common.rope_scaling);
      runners.push_back(make_transformers_runner(common.model, dtype_name(dtype), run.threads, scaling));
    } else {
      methods.push_back(make_method(name, options));
      runners.push_back(make_own_runner(*session.model, *methods.back(), runner_));
    }
  }
  const InterruptGuard guard;
  std::vector<nlohmann::json> lines = run_model_bench(bench_, runners, text, [] { return !interrupted(); });
  if (!common.json) write_output(heading());
  for (nlohmann::json& line : lines) {
    line["model"] = common.model.string();
    line["dtype"] = dtype_name(dtype);
    line["cache_dtype"] = dtype_name(line["method"] == "transformers" ? dtype : cache_dtype);
    line["prefill_chunk"] = runner_.prefill_chunk;
    line["rope_scaling"] = common.rope_scaling ? nlohmann::json(*common.rope_scaling) : nlohmann::json();
    if (common.json) {
      write_json_line(line);
    } else {
      write_output(row(line));
    }
  }
  if (!interrupted()) return 0;
  log_warning("interrupted: the remaining lengths were left out");
  return 1;
}

}  // namespace focus
