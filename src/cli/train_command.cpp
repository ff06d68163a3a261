#include "cli/train_command.h"

#include <algorithm>
#include <utility>

#include "attention/methods/focus_attention.h"
#include "attention/methods/registry.h"
#include "attention/routing/adapter.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/train_gate.h"
#include "cli/train_lm_ste.h"
#include "cli/train_routers.h"
#include "cli/train_weights.h"
#include "cli/training_flags.h"
#include "train/attention_schedule.h"
#include "train/checkpoint.h"
#include "train/training_run.h"

namespace focus {

namespace {

class TrainCommand : public Command {
 public:
  void declare(OptionTable& table) override {
    common_.declare(table, kModelFlags | kAdapterFlag | kDataFlags | kOutFlag | kSeedFlag);
    flags_.declare(table);
    routers_.declare(table);
    table
        .add("centroid-steps", &centroid_steps_,
             "training windows of the routers where weights (two-phase, scratch) or stage lm-ste are trained too")
        .at_least(1)
        .default_text("25, with lm-gate 200");
    table
        .add("router-learning-rate", &router_learning_rate_,
             "of the routers where weights (two-phase, scratch) or stage lm-ste are trained too")
        .above(0)
        .default_text("0.002, with lm-gate 0.003");
    table.add("dense-steps", &dense_steps_, "of scratch with --method focus: first updates under full attention")
        .at_least(0)
        .default_text("a tenth of --max-steps");
    table.add("refit-every", &refit_every_, "of scratch with --method focus: updates until routers are trained again")
        .at_least(1)
        .default_text("a fifth of --max-steps");
    weights_.declare(table);
    eval_.declare(table);
    last_stage_.declare(table);
    attention_.declare(table, method_names());
  }

  int run(const RunContext& run) override {
    const OptionTable& table = run.options;
    attention_.resolve(table);
    if (!common_.out) fail_usage("--out is required: the folder for what is trained");
    const bool refits = flags_.what == "scratch" && table.given("method") && attention_.method == "focus";
    const bool trains_routers = flags_.what == "centroids" || flags_.what == "two-phase" || refits;
    const bool trains_weights = flags_.what != "centroids";
    if (flags_.what == "centroids") routers_.check_objective();
    last_ = flags_.what == "centroids" && routers_.last_stage();
    refuse_unused(table, trains_routers, trains_weights);
    eval_.check(table);
    if (trains_routers) {
      // --max-steps and --learning-rate are those of the weights, or of the last stage, where these are trained too.
      TrainingFlags first = flags_;
      if (trains_weights || last_) {
        first.max_steps = centroid_steps_;
        first.learning_rate = router_learning_rate_;
      }
      if (routers_.gate()) routers_.watch(eval_);
      routers_.resolve(table, first, attention_, common_.seed);
      router_flags_ = std::move(first);
    }
    if (trains_weights) {
      weights_.resolve(table, flags_);
      if (!common_.dtype) common_.dtype = "float32";
    }
    if (last_) {
      last_stage_.resolve(table, flags_, attention_.method, eval_, routers_.repeats(kLastStageRepeats),
                          routers_.list_windows(), common_.seed);
      if (!common_.dtype) common_.dtype = "float32";
    }
    const std::unique_ptr<Collective> processes = flags_.join(table);
    if (!processes) return train(run, trains_routers, trains_weights, nullptr);
    try {
      if (trains_routers && !refits) {
        fail_usage(
            "--train {} runs in one process; several train weights, with --train all --adapter under its routers",
            flags_.what);
      }
      if (run.device.is_cuda()) fail_usage("--device {}: several processes train on the CPU only", common_.device);
      return train(run, trains_routers, trains_weights, processes.get());
    } catch (const std::exception& e) {
      const std::string text = e.what(), line = text.substr(0, text.find('\n'));
      processes->abort(fmt::format("rank {} stopped: {}", processes->rank(), line));
      if (dynamic_cast<const UsageError*>(&e) != nullptr) throw;
      fail("rank {}: {}", processes->rank(), line);
    }
  }

 private:
  static constexpr const char* kMethodFlags[] = {"method", "adapter"};
  static constexpr double kLastStageRepeats = 0.5;

  int train(const RunContext& run, bool trains_routers, bool trains_weights, Collective* processes) {
    const OptionTable& table = run.options;
    const bool writes = processes == nullptr || processes->rank() == 0;
    const SessionStart start = flags_.what == "scratch" ? SessionStart::kRandomWeights : SessionStart::kStoredWeights;
    Session session = open_session(common_, run.device, start);
    std::optional<FolderLock> lock;
    if (writes) {
      prepare_output_folder(*common_.out, "--out");
      lock.emplace(*common_.out, "--out");
      if (flags_.resume && processes == nullptr && is_finished()) return report_finished();
      if (!flags_.resume) {
        require_no_checkpoints(*common_.out);
        require_no_checkpoints(centroids_folder());
      }
      flags_.on_start =
          router_flags_.on_start = [&] { write_file_atomically(*common_.out / "run.toml", table.record_toml()); };
    }
    const std::shared_ptr<const TokenSource> text = read_tokens(session.tokenizer, common_);
    if (last_) return train_last_stage(session, text, table);
    if (!trains_weights) {
      const auto summary = routers_.run(session, text, common_, router_flags_, *common_.out);
      return summary ? report(*summary, RouterTraining::describe(*summary)) : 1;
    }
    TrainingEvaluation evaluation(eval_);
    const auto train_weights = [&](AttentionSchedule& attention, const nlohmann::json& settings) {
      const auto summary =
          weights_.run(session, attention, settings, text, common_, flags_, *common_.out, evaluation, processes);
      if (summary && !writes) return 0;
      return summary ? report(*summary, WeightTraining::describe(*summary)) : 1;
    };
    if (trains_routers && flags_.what == "scratch") {
      RefittedAttention attention(*session.model, text, refit_options(*session.model, processes));
      return train_weights(attention, refit_settings(*session.model));
    }
    if (trains_routers && !train_centroids(session, text)) return 1;
    if (trains_routers && routers_.gate()) {
      const auto summary =
          fine_tune_under_gate(session, routers_, weights_, eval_, text, common_, flags_, *common_.adapter);
      return summary ? report(*summary, WeightTraining::describe(*summary)) : 1;
    }
    if (trains_routers) attention_.method = "focus";
    const std::unique_ptr<AttentionMethod> method = open_method(session, common_, attention_, table);
    FixedAttention attention(*method);
    return train_weights(attention, attention_settings(*method, table));
  }

  /// What decides the attention that weights are trained under, for --resume: the adapter, and the settings of its
  /// method that may change after its training.
  nlohmann::json attention_settings(const AttentionMethod& method, const OptionTable& table) const {
    nlohmann::json settings = {{"adapter", common_.adapter ? adapter_digest(load_adapter(*common_.adapter)) : "none"}};
    if (const auto* focus = dynamic_cast<const FocusAttention*>(&method)) {
      const RoutingConfig& routing = focus->router().config();
      settings.update({{"groups_per_token", routing.groups_per_token},
                       {"window", routing.window},
                       {"sinks", routing.sinks},
                       {"sinkhorn_iters", routing.sinkhorn_iters},
                       {"routing", to_string(routing.routing)}});
      return settings;
    }
    // Of the other methods, which have flags of their own, all flags of attention.
    OptionTable attention("train", "");
    AttentionOptions names;
    names.declare(attention, method_names());
    const nlohmann::json all = table.record(), of_attention = attention.record();
    for (const auto& [name, value] : of_attention.items()) settings[name] = all.value(name, nlohmann::json());
    return settings;
  }

  /// The same where routers are trained again and again.
  nlohmann::json refit_settings(const CausalLM& model) {
    nlohmann::json settings;
    const nlohmann::json of_routers = routers_.settings(model, common_, router_flags_);
    for (const auto& [name, value] : of_routers.items()) settings["routers_" + name] = value;
    const RefittedAttention::Options options = refit_options(model, nullptr);
    settings.update({{"dense_steps", options.dense_steps}, {"refit_every", options.refit_every}});
    return settings;
  }

  /// Where two-phase keeps its first phase.
  std::filesystem::path centroids_folder() const { return *common_.out / "centroids"; }

  /// What a finished run leaves.
  std::filesystem::path result_folder() const {
    const bool adapter = flags_.what == "centroids" || flags_.what == "lora";
    return *common_.out / (adapter ? "adapter" : "model");
  }

  bool is_finished() const {
    return std::filesystem::exists(result_folder()) && !latest_checkpoint(*common_.out) &&
           !latest_checkpoint(centroids_folder());
  }

  int report_finished() const {
    const std::string folder = result_folder().string();
    return report({{"train", flags_.what}, {result_folder().filename().string(), folder}, {"finished_before", true}},
                  fmt::format("{}: this run is finished already; without --resume it is trained anew", folder));
  }

  /// Flags without a meaning for what is trained.
  void refuse_unused(const OptionTable& table, bool trains_routers, bool trains_weights) const {
    const auto refuse = [&](const char* flag) {
      if (table.changed(flag)) fail_usage("--{} has no meaning with --train {}", flag, flags_.what);
    };
    if (!trains_routers) {
      for (const char* flag : RouterTraining::flags()) refuse(flag);
    }
    const bool gate = trains_routers && routers_.gate();
    for (const char* flag : WeightTraining::flags()) {
      if (!trains_weights) refuse(flag);
      if (trains_weights && gate && table.changed(flag) && std::string(flag) != "save-dtype") {
        fail_usage("--{} has no meaning with --objective lm-gate", flag);
      }
    }
    for (const char* flag : EvalFlags::flags()) {
      if (!trains_weights && !gate && !last_ && table.changed(flag)) {
        fail_usage("--{} belongs to training weights and to --objective lm-gate or lm-ste", flag);
      }
    }
    for (const char* flag : LmSteTraining::flags()) {
      if (!last_ && table.changed(flag)) fail_usage("--{} belongs to --objective lm-ste", flag);
    }
    if (last_ && !routers_.first_stages()) {
      check_start(table);
    } else if (trains_routers) {
      for (const char* flag : kMethodFlags) {
        if (table.given(flag) && table.changed(flag))
          fail_usage("--{} has no meaning with --train {}", flag, flags_.what);
      }
    }
    if (trains_routers && table.changed("routing")) {
      fail_usage("--routing is chosen in eval; training prepares both");
    }
    const bool refits = trains_routers && flags_.what == "scratch";
    for (const char* flag : {"centroid-steps", "router-learning-rate"}) {
      if (last_ && !routers_.first_stages() && table.changed(flag)) {
        fail_usage("--{} has no meaning with --objective lm-ste alone", flag);
      }
      if (!refits && flags_.what != "two-phase" && !last_) refuse(flag);
    }
    for (const char* flag : {"dense-steps", "refit-every"}) {
      if (!refits && table.changed(flag)) fail_usage("--{} is for --train scratch --method focus", flag);
    }
    if (flags_.what == "scratch" && common_.adapter) {
      fail_usage("--adapter is made for the weights of another model; --train scratch starts from random ones");
    }
    if (refits && (table.changed("symmetric") || table.changed("objective"))) {
      fail_usage("--train scratch trains its routers by output,lists: --symmetric and --objective have no meaning");
    }
  }

  /// What --objective lm-ste alone starts from: an adapter, or full attention without any.
  void check_start(const OptionTable& table) const {
    if (attention_.method == "full") {
      for (const char* flag : {"adapter", "groups", "groups-per-token", "window", "sinks", "group-dim", "tau", "shared",
                               "symmetric", "global-group", "list-windows"}) {
        if (table.changed(flag)) fail_usage("--{} has no meaning with --objective lm-ste --method full", flag);
      }
      return;
    }
    if (attention_.method != "focus") {
      fail_usage("--method {}: --objective lm-ste trains under focus or full", attention_.method);
    }
    if (!common_.adapter) {
      fail_usage(
          "--objective lm-ste needs --adapter: a folder made by focus train; or --method full, or the stages "
          "output,lists before it");
    }
  }

  /// The last stage, after the first ones where the objective names them.
  int train_last_stage(const Session& session, const std::shared_ptr<const TokenSource>& text,
                       const OptionTable& table) {
    if (routers_.first_stages() && !train_centroids(session, text)) return 1;
    Adapter start;
    if (common_.adapter) start = open_adapter(session, *common_.adapter, common_.force, attention_, table);
    if (attention_.method != "full" && start.router == nullptr) {
      fail_usage("--adapter {}: it has no lists; its head scales are for --method full", common_.adapter->string());
    }
    TrainingEvaluation evaluation(eval_);
    const auto summary =
        last_stage_.run(session, start, text, common_, flags_, *common_.out, evaluation, routers_.adapter_dtype());
    return summary ? report(*summary, LmSteTraining::describe(*summary)) : 1;
  }

  RefittedAttention::Options refit_options(const CausalLM& model, Collective* processes) const {
    RefittedAttention::Options options;
    options.centroids = routers_.centroid_options(model.config());
    options.dense_steps = dense_steps_.value_or(weights_.steps() / 10);
    options.refit_every = refit_every_.value_or(std::max<int64_t>(1, weights_.steps() / 5));
    options.context = flags_.context_for(model, kWeightsContext);
    options.processes = processes;
    return options;
  }

  /// Phase one, unless it is done; sets --adapter to what it made.
  bool train_centroids(const Session& session, const std::shared_ptr<const TokenSource>& text) {
    const std::filesystem::path folder = centroids_folder();
    prepare_output_folder(folder, "--out");
    if (!flags_.resume || !std::filesystem::exists(folder / "adapter")) {
      const auto summary = routers_.run(session, text, common_, router_flags_, folder);
      if (!summary) return false;
      log_info("{}", RouterTraining::describe(*summary));
    } else {
      routers_.require_same(folder / "adapter", *session.model, common_, router_flags_);
    }
    common_.adapter = folder / "adapter";
    return true;
  }

  int report(const nlohmann::json& summary, const std::string& line) const {
    if (common_.json) {
      write_json_line(summary);
    } else {
      write_output(line + "\n");
    }
    return 0;
  }

  AttentionOptions attention_;
  TrainingFlags flags_, router_flags_;
  std::optional<int64_t> centroid_steps_, dense_steps_, refit_every_;
  std::optional<double> router_learning_rate_;
  RouterTraining routers_;
  WeightTraining weights_;
  EvalFlags eval_;
  LmSteTraining last_stage_;
  bool last_ = false;  // --objective names lm-ste.
};

}  // namespace

std::unique_ptr<Command> make_train_command() {
  return std::make_unique<TrainCommand>();
}

}  // namespace focus
