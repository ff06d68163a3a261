#include "cli/train_gate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/methods/focus_attention.h"
#include "attention/methods/full.h"
#include "attention/routing/adapter.h"
#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/log.h"
#include "data/token_source.h"

namespace focus {

std::vector<TrainWindows::Window> read_eval_windows(const Session& session, const CommonOptions& common,
                                                    const EvalFlags& eval, int64_t context) {
  std::vector<TrainWindows::Window> windows;
  if (!eval.data) return windows;
  CommonOptions read = common;
  read.data = *eval.data;
  TrainWindows source(read_tokens(session.tokenizer, read), context, /*seed=*/0, eval.data->string());
  while (std::ssize(windows) < std::min(eval.windows, source.windows_per_epoch())) windows.push_back(source.next());
  return windows;
}

nlohmann::json eval_identity(const std::vector<TrainWindows::Window>& windows) {
  if (windows.empty()) return nullptr;
  uint64_t hash = kHashStart;
  for (const TrainWindows::Window& window : windows) hash = hash_values(window.ids, hash);
  return fmt::format("{} windows, {:016x}", windows.size(), hash);
}

void watch_groups(GateTrainer& trainer, const EvalFlags& eval, TrainingRunOptions& options) {
  if (!eval.data) return;
  options.eval_every = eval.every;
  options.evaluate = [&trainer] {
    EvalFigures measured;
    measured.loss = trainer.evaluate();
    const GroupFigures& figures = *trainer.figures();
    measured.further = {{"eval_dominance", figures.dominance},
                        {"eval_dominance_mean", figures.dominance_mean},
                        {"eval_dead_groups", figures.dead_groups},
                        {"eval_stability", *figures.stability}};
    return measured;
  };
}

nlohmann::json summarise_groups(const CausalLM& model, const GateTrainer& trainer, const RoutingConfig& routing,
                                const std::map<int64_t, LayerRouter>& routers,
                                const std::vector<TrainWindows::Window>& windows, const std::filesystem::path& out) {
  FocusAttention routed(std::make_shared<const Router>(routing, routers));
  FullAttention full;
  const double nats = window_nats(model, full, windows);
  nlohmann::json summary = {{"routed", to_json(measure_routed(model, routed, windows))},
                            {"full", {{"eval_loss", nats}, {"perplexity", std::exp(nats)}}}};
  if (trainer.figures()) summary["soft"] = to_json(*trainer.figures());
  if (trainer.paths()) summary["paths"] = to_json(*trainer.paths());
  write_file_atomically(out / "groups.json", json_text(summary, 2) + "\n");
  return summary;
}

std::optional<nlohmann::json> fine_tune_under_gate(Session& session, const RouterTraining& routers,
                                                   const WeightTraining& weights, const EvalFlags& eval,
                                                   const std::shared_ptr<const TokenSource>& text,
                                                   const CommonOptions& common, const TrainingFlags& flags,
                                                   const std::filesystem::path& adapter) {
  const CausalLM& model = *session.model;
  const std::filesystem::path out = *common.out;
  const int64_t context = flags.context_for(model, kGateContext);
  GateTrainingOptions training = routers.gate_options();
  const Adapter start = load_adapter(adapter);
  training.start = start.router->layers();
  training.layers.clear();
  for (const auto& [layer, router] : training.start) training.layers.push_back(layer);
  training.steps = weights.steps();
  training.weights_learning_rate = weights.learning_rate();
  training.eval_windows = read_eval_windows(session, common, eval, context);
  TrainWindows windows(text, context, static_cast<uint64_t>(common.seed), common.data.string());
  // The model's weights must be those of the start when a checkpoint is loaded: see GateTrainer::load_state.
  TrainingRunOptions options = flags.run_options(common, out, context, routers.identity(model));
  options.identity.update({{"train", "two-phase"},
                           {"max_steps", training.steps},
                           {"layers", training.layers},
                           {"weights_learning_rate", *training.weights_learning_rate},
                           {"adapter", adapter_digest(start)},
                           {"eval_data", eval_identity(training.eval_windows)}});
  GateTrainer trainer(model, training, [&] { return windows.next(); });
  watch_groups(trainer, eval, options);
  const InterruptGuard guard;  // What is trained must be written too, whatever comes after the last step.
  const TrainingRunResult result = run_training(trainer, options, windows);
  if (!result.finished) {
    log_warning("interrupted at step {} of {}; go on with --resume", result.steps, training.steps);
    return std::nullopt;
  }
  const FocusAttention method(std::make_shared<const Router>(training.routing, result.routers));
  weights.save(session, method, common, out / "model", routers.gate_settings());
  nlohmann::json summary = {{"train", "two-phase"},  {"method", "soft-gate"},     {"model", (out / "model").string()},
                            {"steps", result.steps}, {"seconds", result.seconds}, {"loss", result.last_loss}};
  if (!training.eval_windows.empty()) {
    summary["groups"] = summarise_groups(model, trainer, training.routing, result.routers, training.eval_windows, out);
    const std::filesystem::path before = adapter.parent_path() / "groups.json";
    if (std::filesystem::exists(before)) summary["groups_before"] = read_json_object(before);
  }
  return summary;
}

}  // namespace focus
