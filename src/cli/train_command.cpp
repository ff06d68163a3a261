#include "cli/train_command.h"

#include <algorithm>

#include "attention/methods/focus_attention.h"
#include "attention/routing/adapter.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/ranges.h"
#include "cli/device.h"
#include "cli/output.h"
#include "cli/session.h"
#include "eval/leak_probe.h"
#include "train/centroid_trainer.h"
#include "train/gate_trainer.h"
#include "train/training_run.h"

namespace focus {

namespace {

constexpr int64_t kDefaultContext = 1024;

class TrainCommand : public Command {
 public:
  void declare(OptionTable& table) override {
    common_.declare(table, kModelFlags | kDataFlags | kOutFlag | kSeedFlag);
    table.section("Training");
    table.add("train", &what_, "what is trained: centroids, the routers with every weight of the model frozen")
        .one_of({"centroids"});
    table
        .add("objective", &objective_,
             "stages: output (the index, by the error of each block's output), lists (the codebook, by the same "
             "error); or, with --symmetric, lm-gate: the paper's soft gate under the language-model loss")
        .one_of({"output", "lists", "lm-gate"});
    table.add("max-steps", &training_.steps, "training windows over all stages")
        .at_least(1)
        .default_text(fmt::format("{}, with lm-gate {}", training_.steps, gate_.steps));
    table.add("context", &context_, "tokens a training window")
        .at_least(2)
        .default_text("1024, or the model's context if that is shorter");
    table.add("layers", &layers_, "layers that get lists, such as 4-27 or 0,2,5-9; the others attend densely")
        .value_name("RANGES")
        .default_text("all whose own sliding window, if any, exceeds --window");
    table.add("updates-per-step", &training_.updates_per_step, "updates of every layer on each window").at_least(1);
    table.add("rows", &training_.distillation.rows, "query positions sampled for an update").at_least(1);
    table
        .add("list-windows", &training_.list_windows,
             "windows whose keys the lists are built from and balanced on; with lm-gate balanced only")
        .at_least(1);
    table.add("lists-share", &training_.lists_share, "share of the steps for stage lists").at_least(0).below(1);
    table.add("repeats", &training_.repeats, "share of windows that end with a repeat of an earlier passage")
        .at_least(0)
        .at_most(1);
    table.add_choice("probes", &training_.probes_by_head, {{"by-head", true}, {"uniform", false}},
                     "lists that queries probe: shared out among heads by what they gain, or as many for each");
    table.add("far-fraction", &training_.distillation.far_fraction, "share of far pairs that stage output lets through")
        .above(0)
        .at_most(1);
    table
        .add("gate-sharpness", &gate_.sharpness,
             "lambda of the soft gate, sigmoid(lambda * shared membership), of lm-gate")
        .above(0);
    table.add("learning-rate", &training_.distillation.learning_rate, "of Adam")
        .above(0)
        .default_text(fmt::format("{}, with lm-gate {}", training_.distillation.learning_rate, gate_.learning_rate));
    table.add_choice(
        "lr-scheduler", &training_.distillation.scheduler,
        {{"constant", LrScheduler::kConstant}, {"linear", LrScheduler::kLinear}, {"cosine", LrScheduler::kCosine}},
        "how the learning rate comes down");
    table.add("warmup-steps", &training_.distillation.warmup_updates, "updates until the full learning rate")
        .at_least(0);
    table
        .add("max-grad-norm", &training_.distillation.max_grad_norm,
             "gradients of a layer, with lm-gate of all layers, are clipped to this norm")
        .above(0);
    table.add("save-every", &save_every_, "steps between checkpoints, 0: only when interrupted").at_least(0);
    table.add("save-total-limit", &save_total_limit_, "newest checkpoints to keep, 0: all").at_least(0);
    table.add("resume", &resume_, "go on from the newest checkpoint in --out").unrecorded();
    table.add("adapter-dtype", &adapter_dtype_, "type of the saved weights").one_of({"float32", "bfloat16"});
    attention_.declare(table, {});
  }

  int run(const RunContext& run) override {
    attention_.resolve(run.options);
    if (!common_.out) fail_usage("--out is required: the folder for the adapter");
    resolve_objective(run.options);
    training_.distillation.routing = routing_config(attention_);
    training_.distillation.routing.validate();
    training_.distillation.seed = common_.seed;
    prepare_output_folder(*common_.out, "--out");
    Session session = open_session(common_, run.device);
    const int64_t positions = session.model->config().max_positions;
    const int64_t context = context_.value_or(std::min(kDefaultContext, positions));
    if (context > positions) fail_usage("--context {}: the model's context is {}", context, positions);
    training_.layers = choose_layers(session.model->config());
    const std::vector<Document> documents = read_documents(session.tokenizer, common_);
    TrainWindows windows(documents, context, static_cast<uint64_t>(common_.seed), common_.data.string());
    write_file_atomically(*common_.out / "run.toml", run.options.record_toml());

    const std::unique_ptr<Trainer> trainer = make_trainer(*session.model, [&] { return windows.next(); });
    TrainingRunOptions options;
    options.out = *common_.out;
    options.save_every = save_every_;
    options.save_total_limit = save_total_limit_;
    options.resume = resume_;
    options.identity = identity(*session.model, context);
    if (common_.json) options.on_metrics = [](const nlohmann::json& line) { write_json_line(line); };
    const TrainingRunResult result = run_training(*trainer, options, windows);
    if (!result.finished) {
      log_warning("interrupted at step {} of {}; go on with --resume", result.steps, training_.steps);
      return 1;
    }
    return finish(session, documents, result);
  }

 private:
  bool has_objective(const char* name) const { return std::count(objective_.begin(), objective_.end(), name) > 0; }
  bool gate() const { return has_objective("lm-gate"); }

  /// Checks the objective and refuses settings that it has no use for, then fills in its defaults.
  void resolve_objective(const OptionTable& table) {
    const std::string named = fmt::format("{}", fmt::join(objective_, ","));
    const bool stages =
        objective_ == std::vector<std::string>{"output"} || objective_ == std::vector<std::string>{"output", "lists"};
    if (!stages && named != "lm-gate") {
      fail_usage("--objective {}: expected output, output,lists or lm-gate", named);
    }
    if (gate() && !attention_.symmetric) {
      fail_usage("--objective lm-gate trains the paper's form: it needs --symmetric");
    }
    if (!gate() && attention_.symmetric) fail_usage("--symmetric trains with --objective lm-gate, not with {}", named);
    std::vector<const char*> unused = {"gate-sharpness", "sinkhorn-iters"};
    if (gate())
      unused = {"updates-per-step", "rows", "lists-share", "repeats", "probes", "far-fraction", "global-group"};
    if (named == "output") unused.push_back("lists-share");
    for (const char* flag : unused) {
      if (table.changed(flag)) fail_usage("--{} has no meaning with --objective {}", flag, named);
    }
    if (table.changed("routing")) fail_usage("--routing is chosen in eval; training prepares both");
    if (gate() && !table.given("max-steps")) training_.steps = gate_.steps;
    if (gate() && !table.given("learning-rate")) training_.distillation.learning_rate = gate_.learning_rate;
  }

  /// The layers of --layers, or all that have pairs to choose from.
  std::vector<int64_t> choose_layers(const ModelConfig& config) const {
    const auto is_narrow = [&](int64_t layer) {
      return config.layer_window(layer) > 0 && config.layer_window(layer) <= attention_.window + 1;
    };
    std::vector<int64_t> layers, narrow;
    if (layers_) {
      layers = parse_ranges("layers", *layers_, config.num_layers);
      for (const int64_t layer : layers) {
        if (is_narrow(layer)) {
          fail_usage("--layers {}: layer {} sees {} tokens only, no more than --window {} lets through", *layers_,
                     layer, config.layer_window(layer), attention_.window);
        }
      }
      return layers;
    }
    for (int64_t layer = 0; layer < config.num_layers; ++layer) (is_narrow(layer) ? narrow : layers).push_back(layer);
    if (layers.empty()) {
      fail_usage("--window {}: no layer of this model sees further back, there is nothing to choose from",
                 attention_.window);
    }
    if (!narrow.empty()) log_info("layers {} stay as they are: their own window is no longer", fmt::join(narrow, ", "));
    return layers;
  }

  std::unique_ptr<Trainer> make_trainer(const CausalLM& model,
                                        std::function<TrainWindows::Window()> next_window) const {
    const DistillationOptions& d = training_.distillation;
    if (gate()) {
      GateTrainingOptions options = gate_;
      options.routing = d.routing;
      options.layers = training_.layers;
      options.steps = training_.steps;
      options.calibration_windows = training_.list_windows;
      options.learning_rate = d.learning_rate;
      options.warmup_steps = d.warmup_updates;
      options.max_grad_norm = d.max_grad_norm;
      options.scheduler = d.scheduler;
      options.seed = d.seed;
      return std::make_unique<GateTrainer>(model, options, std::move(next_window));
    }
    CentroidTrainingOptions options = training_;
    if (!has_objective("lists")) options.lists_share = 0;
    return std::make_unique<CentroidTrainer>(model, options, std::move(next_window));
  }

  /// What must be the same for a checkpoint to be continued. (The data is checked by the windows' own state.)
  nlohmann::json identity(const CausalLM& model, int64_t context) const {
    const DistillationOptions& d = training_.distillation;
    nlohmann::json settings = {{"model", model_fingerprint(model)},
                               {"objective", objective_},
                               {"layers", training_.layers},
                               {"context", context},
                               {"max_steps", training_.steps},
                               {"list_windows", training_.list_windows},
                               {"learning_rate", d.learning_rate},
                               {"warmup_steps", d.warmup_updates},
                               {"lr_scheduler", static_cast<int>(d.scheduler)},
                               {"max_grad_norm", d.max_grad_norm},
                               {"seed", d.seed},
                               {"groups", d.routing.groups},
                               {"groups_per_token", d.routing.groups_per_token},
                               {"window", d.routing.window},
                               {"sinks", d.routing.sinks},
                               {"group_dim", d.routing.group_dim},
                               {"tau", d.routing.tau},
                               {"shared", d.routing.shared}};
    if (gate()) {
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

  int finish(const Session& session, const std::vector<Document>& documents, const TrainingRunResult& result) {
    const auto longest = std::max_element(documents.begin(), documents.end(),
                                          [](const Document& a, const Document& b) { return a.size() < b.size(); });
    const int64_t probed = std::min<int64_t>(512, std::ssize(*longest));
    const double dominance = *std::max_element(result.largest_shares.begin(), result.largest_shares.end());
    const auto router = std::make_shared<const Router>(training_.distillation.routing, result.routers);
    FocusAttention method(router);
    const LeakProbeResult leak =
        probe_leak(*session.model, method, {longest->begin(), longest->begin() + probed}, common_.seed);
    require(!leak.leaks(),
            "the trained router lets later tokens change earlier logits by {:.3g}: no adapter is written",
            leak.max_abs_diff);
    Adapter adapter;
    adapter.router = router;
    adapter.base_model_name_or_path = common_.model.filename().string();
    adapter.base_fingerprint = model_fingerprint(*session.model);
    adapter.module = session.model->attention_module();
    adapter.training = {{"objective", objective_},
                        {"max_steps", training_.steps},
                        {"seconds", result.seconds},
                        {"seed", common_.seed},
                        {"data", common_.data.filename().string()}};
    const at::ScalarType dtype = *parse_dtype(adapter_dtype_);
    const std::filesystem::path folder = *common_.out / "adapter";
    save_adapter(folder, adapter, dtype);
    const PairCount pairs = method.pairs();
    nlohmann::json summary = {{"adapter", common_.out->string()},
                              {"steps", result.steps},
                              {"seconds", result.seconds},
                              {"dominance", dominance},
                              {"leak_max_abs_diff", leak.max_abs_diff},
                              {"pairs_kept_probe", share(pairs)},
                              {"adapter_bytes", std::filesystem::file_size(folder / "adapter_model.safetensors")}};
    if (common_.json) {
      write_json_line(summary);
    } else {
      write_output(
          fmt::format("adapter {} ({} KB) after {} steps in {:.0f} s; largest list {:.2f}% of keys, largest change in "
                      "the leak probe {:.2g}\n",
                      folder.string(), summary["adapter_bytes"].get<int64_t>() / 1000, result.steps, result.seconds,
                      100 * dominance, leak.max_abs_diff));
    }
    return 0;
  }

  AttentionOptions attention_;
  CentroidTrainingOptions training_;  // What both ways of training know is read from here.
  GateTrainingOptions gate_;
  std::string what_ = "centroids";
  std::vector<std::string> objective_ = {"output", "lists"};
  std::optional<int64_t> context_;
  std::optional<std::string> layers_;
  int64_t save_every_ = 0;
  int64_t save_total_limit_ = 2;
  bool resume_ = false;
  std::string adapter_dtype_ = "float32";
};

}  // namespace

std::unique_ptr<Command> make_train_command() {
  return std::make_unique<TrainCommand>();
}

}  // namespace focus
