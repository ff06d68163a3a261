#include "cli/train_routers.h"

#include <algorithm>
#include <utility>

#include "attention/methods/focus_attention.h"
#include "attention/routing/adapter.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/ranges.h"
#include "cli/device.h"
#include "cli/train_gate.h"
#include "eval/leak_probe.h"

namespace focus {

namespace {

// Text that the leak probe chooses its prompt from.
constexpr int64_t kProbeDocuments = 16, kProbeTokens = 512;
// Lists and probes are measured on far pairs: half of a window of 2048 is farther back than one of 1024 reaches.
constexpr int64_t kCentroidContext = 2048;

}  // namespace

void RouterTraining::declare(OptionTable& table) {
  table.section("Training routers");
  table
      .add("objective", &objective_,
           "stages: output (the index, by the error of each block's output), lists (the codebook, by the same "
           "error), lm-ste (lists and heads by the language-model loss; alone for the adapter of --adapter, or with "
           "--method full for heads only); or, with --symmetric, lm-gate: the paper's soft gate under that loss")
      .one_of({"output", "lists", "lm-ste", "lm-gate"});
  table.add("layers", &layers_, "layers that get lists, such as 4-27 or 0,2,5-9; the others attend densely")
      .value_name("RANGES")
      .default_text("all whose own sliding window, if any, exceeds --window");
  table.add("updates-per-step", &training_.updates_per_step, "updates of every layer on each window").at_least(1);
  table.add("rows", &training_.distillation.rows, "query positions sampled for an update").at_least(1);
  table
      .add("list-windows", &training_.list_windows,
           "windows whose keys the lists are built from and balanced on; with lm-gate or lm-ste balanced only")
      .at_least(1);
  table.add("lists-share", &training_.lists_share, "share of the steps for stage lists").at_least(0).below(1);
  table.add("repeats", &repeats_, "share of windows that end with a repeat of an earlier passage")
      .at_least(0)
      .at_most(1)
      .default_text("0.34, in stage lm-ste 0.5");
  table.add_choice("probes", &training_.probes_by_head, {{"by-head", true}, {"uniform", false}},
                   "lists that queries probe: shared out among heads by what they gain, or as many for each");
  table.add("far-fraction", &training_.distillation.far_fraction, "share of far pairs that stage output lets through")
      .above(0)
      .at_most(1);
  table
      .add("gate-sharpness", &gate_.sharpness,
           "lambda of the soft gate, sigmoid(lambda * shared membership), of lm-gate")
      .above(0);
  balance_.declare(table);
  table.add("adapter-dtype", &adapter_dtype_, "type of the saved weights").one_of({"float32", "bfloat16"});
}

std::vector<const char*> RouterTraining::flags() {
  std::vector<const char*> names = {"objective",    "layers",         "updates-per-step", "rows",
                                    "list-windows", "lists-share",    "repeats",          "probes",
                                    "far-fraction", "gate-sharpness", "adapter-dtype"};
  for (const char* name : GateFlags::flags()) names.push_back(name);
  return names;
}

bool RouterTraining::has_objective(const char* name) const {
  return std::count(objective_.begin(), objective_.end(), name) > 0;
}

void RouterTraining::check_objective() const {
  const std::string named = fmt::format("{}", fmt::join(objective_, ","));
  const bool stages = named == "output" || named == "output,lists" || named == "output,lists,lm-ste";
  if (!stages && named != "lm-ste" && named != "lm-gate") {
    fail_usage("--objective {}: expected output, output,lists, output,lists,lm-ste, lm-ste or lm-gate", named);
  }
}

void RouterTraining::resolve(const OptionTable& table, const TrainingFlags& flags, const AttentionOptions& attention,
                             int64_t seed) {
  check_objective();
  const std::string named = fmt::format("{}", fmt::join(objective_, ","));
  if (gate() && !attention.symmetric) {
    fail_usage("--objective lm-gate trains the paper's form: it needs --symmetric");
  }
  if (!gate() && attention.symmetric) fail_usage("--symmetric trains with --objective lm-gate, not with {}", named);
  std::vector<const char*> unused = GateFlags::flags();
  unused.insert(unused.end(), {"gate-sharpness", "sinkhorn-iters"});
  if (gate()) unused = {"updates-per-step", "rows", "lists-share", "repeats", "probes", "far-fraction", "global-group"};
  if (named == "output") unused.push_back("lists-share");
  if (named == "lm-ste") {
    unused = {"updates-per-step", "rows",           "lists-share",    "probes",
              "far-fraction",     "gate-sharpness", "sinkhorn-iters", "layers"};
  }
  for (const char* flag : unused) {
    if (table.changed(flag)) fail_usage("--{} has no meaning with --objective {}", flag, named);
  }
  if (gate()) {
    balance_.check(table);
    eval_.check(table);
  }
  training_.steps = flags.max_steps.value_or(gate() ? gate_.steps : training_.steps);
  training_.repeats = repeats(training_.repeats);
  DistillationOptions& d = training_.distillation;
  d.learning_rate = flags.learning_rate.value_or(gate() ? gate_.learning_rate : d.learning_rate);
  d.scheduler = flags.scheduler;
  d.warmup_updates = flags.warmup_steps;
  d.max_grad_norm = flags.max_grad_norm;
  d.routing = routing_config(attention);
  d.routing.validate();
  d.seed = seed;
  window_ = attention.window;
}

CentroidTrainingOptions RouterTraining::centroid_options(const ModelConfig& config) const {
  CentroidTrainingOptions options = training_;
  options.layers = choose_layers(config);
  if (!has_objective("lists")) options.lists_share = 0;
  return options;
}

std::optional<nlohmann::json> RouterTraining::run(const Session& session,
                                                  const std::shared_ptr<const TokenSource>& text,
                                                  const CommonOptions& common, const TrainingFlags& flags,
                                                  const std::filesystem::path& out) {
  const nlohmann::json all = settings(*session.model, common, flags);
  const int64_t context = context_of(*session.model, flags);
  TrainWindows windows(text, context, static_cast<uint64_t>(common.seed), common.data.string());
  if (gate()) gate_.eval_windows = read_eval_windows(session, common, eval_, context);
  const std::unique_ptr<Trainer> trainer = make_trainer(*session.model, [&] { return windows.next(); });
  TrainingRunOptions options = flags.run_options(common, out, context, all);
  if (gate()) options.identity["eval_data"] = eval_identity(gate_.eval_windows);
  auto* gated = dynamic_cast<GateTrainer*>(trainer.get());
  if (gated != nullptr) watch_groups(*gated, eval_, options);
  const InterruptGuard guard;  // What is trained must be written too, whatever comes after the last step.
  const TrainingRunResult result = run_training(*trainer, options, windows);
  if (!result.finished) {
    log_warning("interrupted at step {} of {}; go on with --resume", result.steps, training_.steps);
    return std::nullopt;
  }
  nlohmann::json summary = finish(session, *text, common, out, result, all);
  if (gated != nullptr && !gate_.eval_windows.empty()) {
    summary["groups"] = summarise_groups(*session.model, *gated, training_.distillation.routing, result.routers,
                                         gate_.eval_windows, out);
  }
  return summary;
}

nlohmann::json RouterTraining::settings(const CausalLM& model, const CommonOptions& common,
                                        const TrainingFlags& flags) {
  training_.layers = choose_layers(model.config());
  return flags.run_options(common, {}, context_of(model, flags), identity(model)).identity;
}

void RouterTraining::require_same(const std::filesystem::path& adapter, const CausalLM& model,
                                  const CommonOptions& common, const TrainingFlags& flags) {
  const nlohmann::json before = load_adapter(adapter).training;
  nlohmann::json saved = before.value("settings", nlohmann::json::object()), now = settings(model, common, flags);
  saved["data"] = before.value("data", nlohmann::json());
  now["data"] = common.data.filename().string();
  require_same_settings(saved, now, adapter, "adapter");
}

int64_t RouterTraining::context_of(const CausalLM& model, const TrainingFlags& flags) const {
  return flags.context_for(model, gate() ? kGateContext : kCentroidContext);
}

/// The layers of --layers, or all that have pairs to choose from.
std::vector<int64_t> RouterTraining::choose_layers(const ModelConfig& config) const {
  const auto is_narrow = [&](int64_t layer) {
    return config.layer_window(layer) > 0 && config.layer_window(layer) <= window_ + 1;
  };
  std::vector<int64_t> layers, narrow;
  if (layers_) {
    layers = parse_ranges("layers", *layers_, config.num_layers);
    for (const int64_t layer : layers) {
      if (is_narrow(layer)) {
        fail_usage("--layers {}: layer {} sees {} tokens only, no more than --window {} lets through", *layers_, layer,
                   config.layer_window(layer), window_);
      }
    }
    return layers;
  }
  for (int64_t layer = 0; layer < config.num_layers; ++layer) (is_narrow(layer) ? narrow : layers).push_back(layer);
  if (layers.empty()) {
    fail_usage("--window {}: no layer of this model sees further back, there is nothing to choose from", window_);
  }
  if (!narrow.empty()) log_info("layers {} stay as they are: their own window is no longer", fmt::join(narrow, ", "));
  return layers;
}

std::unique_ptr<Trainer> RouterTraining::make_trainer(const CausalLM& model,
                                                      std::function<TrainWindows::Window()> next_window) const {
  if (gate()) return std::make_unique<GateTrainer>(model, gate_options(), std::move(next_window));
  CentroidTrainingOptions options = training_;
  if (!has_objective("lists")) options.lists_share = 0;
  return std::make_unique<CentroidTrainer>(model, options, std::move(next_window));
}

GateTrainingOptions RouterTraining::gate_options() const {
  const DistillationOptions& d = training_.distillation;
  GateTrainingOptions options = gate_;
  options.routing = d.routing;
  options.balance = balance_.balance;
  options.layers = training_.layers;
  options.steps = training_.steps;
  options.calibration_windows = training_.list_windows;
  options.learning_rate = d.learning_rate;
  options.warmup_steps = d.warmup_updates;
  options.max_grad_norm = d.max_grad_norm;
  options.scheduler = d.scheduler;
  options.seed = d.seed;
  return options;
}

nlohmann::json RouterTraining::identity(const CausalLM& model) const {
  const DistillationOptions& d = training_.distillation;
  nlohmann::json settings = {{"model", model_fingerprint(model)},
                             {"dtype", c10::toString(model.parameters().front().second.scalar_type())},
                             {"objective", objective_},
                             {"layers", training_.layers},
                             {"max_steps", training_.steps},
                             {"list_windows", training_.list_windows},
                             {"learning_rate", d.learning_rate},
                             {"groups", d.routing.groups},
                             {"groups_per_token", d.routing.groups_per_token},
                             {"window", d.routing.window},
                             {"sinks", d.routing.sinks},
                             {"group_dim", d.routing.group_dim},
                             {"tau", d.routing.tau},
                             {"shared", d.routing.shared}};
  if (gate()) {
    settings.update(balance_.identity());
    settings.update({{"gate_sharpness", gate_.sharpness}, {"sinkhorn_iters", d.routing.sinkhorn_iters}});
  } else {
    settings.update({{"updates_per_step", training_.updates_per_step},
                     {"rows", d.rows},
                     {"lists_share", training_.lists_share},
                     {"repeats", training_.repeats},
                     {"probes_by_head", training_.probes_by_head},
                     {"far_fraction", d.far_fraction},
                     {"global_group", d.routing.global_group}});
  }
  return settings;
}

nlohmann::json RouterTraining::finish(const Session& session, const TokenSource& text, const CommonOptions& common,
                                      const std::filesystem::path& out, const TrainingRunResult& result,
                                      const nlohmann::json& settings) const {
  const double dominance = *std::max_element(result.largest_shares.begin(), result.largest_shares.end());
  const auto router = std::make_shared<const Router>(training_.distillation.routing, result.routers);
  FocusAttention method(router);
  const LeakProbeResult leak = probe_leak(*session.model, method, sample_documents(text, kProbeDocuments, kProbeTokens),
                                          static_cast<uint64_t>(common.seed));
  require(!leak.leaks(), "the trained router lets later tokens change earlier logits by {:.3g}: no adapter is written",
          leak.max_abs_diff);
  Adapter adapter;
  adapter.router = router;
  adapter.base_model_name_or_path = common.model.filename().string();
  adapter.base_fingerprint = model_fingerprint(*session.model);
  adapter.module = session.model->attention_module();
  adapter.training = {{"objective", objective_},
                      {"max_steps", training_.steps},
                      {"seconds", result.seconds},
                      {"seed", common.seed},
                      {"data", common.data.filename().string()},
                      {"settings", settings}};
  if (gate()) adapter.training.update(balance_.identity());
  const at::ScalarType dtype = *parse_dtype(adapter_dtype_);
  const std::filesystem::path folder = out / "adapter";
  save_adapter(folder, adapter, dtype);
  const PairCount pairs = method.pairs();
  return {{"adapter", folder.string()},
          {"steps", result.steps},
          {"seconds", result.seconds},
          {"dominance", dominance},
          {"leak_max_abs_diff", leak.max_abs_diff},
          {"pairs_kept_probe", share(pairs)},
          {"adapter_bytes", std::filesystem::file_size(folder / "adapter_model.safetensors")}};
}

std::string RouterTraining::describe(const nlohmann::json& summary) {
  return fmt::format(
      "adapter {} ({} KB) after {} steps in {:.0f} s; largest list {:.2f}% of keys, largest change in "
      "the leak probe {:.2g}",
      summary["adapter"].get<std::string>(), summary["adapter_bytes"].get<int64_t>() / 1000,
      summary["steps"].get<int64_t>(), summary["seconds"].get<double>(), 100 * summary["dominance"].get<double>(),
      summary["leak_max_abs_diff"].get<double>());
}

}  // namespace focus
