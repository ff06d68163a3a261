#include "cli/train_lm_ste.h"

#include <algorithm>

#include "attention/methods/focus_attention.h"
#include "attention/methods/full.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cli/device.h"
#include "eval/leak_probe.h"

namespace focus {

namespace {

constexpr int64_t kProbeDocuments = 16, kProbeTokens = 512;

void add_eval(nlohmann::json& summary, const std::string& when, const std::optional<EvalFigures>& figures) {
  if (!figures) return;
  summary[when + "_eval_loss"] = figures->loss;
  if (figures->copy) summary[when + "_eval_copy_nll"] = *figures->copy;
  if (figures->pairs_kept) summary[when + "_eval_pairs_kept"] = *figures->pairs_kept;
}

}  // namespace

void LmSteTraining::declare(OptionTable& table) {
  table.section("Last stage of routers (--objective lm-ste)");
  table
      .add("lm-trains", &trains_,
           "what the language-model loss trains: codebook, the lists, through the hard mask; scales, two scalars of "
           "every query head")
      .one_of({"codebook", "scales"})
      .default_text("codebook,scales; with --method full scales");
  table
      .add("patience", &patience_,
           "measurements in a row without a new lowest loss on --eval-data (and a quarter of that of copying) after "
           "which training ends, 0: never")
      .at_least(0);
}

void LmSteTraining::resolve(const OptionTable& table, const TrainingFlags& flags, const std::string& method,
                            const EvalFlags& eval, double repeats, int64_t calibration_windows, int64_t seed) {
  const auto trains = [&](const char* name) { return std::count(trains_.begin(), trains_.end(), name) > 0; };
  training_.lists = trains("codebook") && method != "full";
  training_.scales = trains("scales");
  if (method == "full" && table.changed("lm-trains")) {
    fail_usage("--lm-trains has no meaning with --method full: head scales are all there is to train");
  }
  if (method == "full") training_.scales = true;
  if (!eval.data && table.changed("patience")) fail_usage("--patience needs --eval-data");
  training_.steps = flags.max_steps.value_or(training_.steps);
  training_.learning_rate = flags.learning_rate.value_or(training_.learning_rate);
  training_.warmup_steps = flags.warmup_steps;
  training_.max_grad_norm = flags.max_grad_norm;
  training_.scheduler = flags.scheduler;
  training_.repeats = repeats;
  training_.calibration_windows = calibration_windows;
  training_.seed = seed;
}

/// What must be the same for a checkpoint to be continued. (The data is checked by the windows' own state.)
nlohmann::json LmSteTraining::identity(const Session& session, const Adapter& start,
                                       const TrainingEvaluation& evaluation) const {
  nlohmann::json settings = {{"model", model_fingerprint(*session.model)},
                             {"objective", "lm-ste"},
                             {"start", adapter_digest(start)},
                             {"trains_codebook", training_.lists},
                             {"trains_scales", training_.scales},
                             {"max_steps", training_.steps},
                             {"learning_rate", training_.learning_rate},
                             {"repeats", training_.repeats},
                             {"list_windows", training_.calibration_windows},
                             {"patience", patience_},
                             {"eval_data", evaluation.identity()}};
  if (start.router != nullptr) {
    const RoutingConfig& routing = start.router->config();
    settings.update(
        {{"groups_per_token", routing.groups_per_token}, {"window", routing.window}, {"sinks", routing.sinks}});
  }
  return settings;
}

std::optional<nlohmann::json> LmSteTraining::run(const Session& session, const Adapter& start,
                                                 const std::shared_ptr<const TokenSource>& text,
                                                 const CommonOptions& common, const TrainingFlags& flags,
                                                 const std::filesystem::path& out, TrainingEvaluation& evaluation,
                                                 const std::string& adapter_dtype) {
  const CausalLM& model = *session.model;
  if (start.router != nullptr && training_.lists && start.router->config().symmetric) {
    fail_usage(
        "--objective lm-ste: the adapter is of the symmetric form, of which --lm-trains scales alone can be "
        "trained");
  }
  const int64_t context = flags.context_for(model, kWeightsContext);
  TrainWindows windows(text, context, static_cast<uint64_t>(common.seed), common.data.string());
  SteTrainer trainer(model, start.router, start.scales, training_, [&] { return windows.next(); });
  if (evaluation.given()) evaluation.open(session, common, context);
  TrainingRunOptions options = flags.run_options(common, out, context, identity(session, start, evaluation));
  if (evaluation.given()) {
    options.evaluate = [&] { return evaluation.loss_and_copy(model, trainer.method()); };
    options.eval_every = evaluation.every();
    options.evaluate_start = true;
    options.patience = patience_;
    options.on_best = [&] { trainer.keep_best(); };
  }
  const InterruptGuard guard;  // What is trained must be written too, whatever comes after the last step.
  const TrainingRunResult result = run_training(trainer, options, windows);
  if (!result.finished) {
    log_warning("interrupted at step {} of {}; go on with --resume", result.steps, training_.steps);
    return std::nullopt;
  }
  return finish(session, start, *text, common, out, trainer, result, *parse_dtype(adapter_dtype));
}

nlohmann::json LmSteTraining::finish(const Session& session, const Adapter& start, const TokenSource& text,
                                     const CommonOptions& common, const std::filesystem::path& out,
                                     const SteTrainer& trainer, const TrainingRunResult& result,
                                     at::ScalarType dtype) const {
  Adapter adapter;
  adapter.scales = trainer.scales();
  std::unique_ptr<AttentionMethod> method = std::make_unique<FullAttention>(adapter.scales);
  if (start.router != nullptr) {
    adapter.router = std::make_shared<const Router>(start.router->config(), result.routers);
    method = std::make_unique<FocusAttention>(adapter.router, adapter.scales);
  }
  const LeakProbeResult leak =
      probe_leak(*session.model, *method, sample_documents(text, kProbeDocuments, kProbeTokens),
                 static_cast<uint64_t>(common.seed));
  require(!leak.leaks(), "the trained router lets later tokens change earlier logits by {:.3g}: no adapter is written",
          leak.max_abs_diff);
  adapter.base_model_name_or_path = common.model.filename().string();
  adapter.base_fingerprint = model_fingerprint(*session.model);
  adapter.module = session.model->attention_module();
  adapter.training = {{"objective", {"lm-ste"}}, {"max_steps", training_.steps},
                      {"steps", result.steps},   {"seconds", result.seconds},
                      {"seed", common.seed},     {"data", common.data.filename().string()},
                      {"start", start.training}};
  const std::filesystem::path folder = out / "adapter";
  save_adapter(folder, adapter, dtype);
  nlohmann::json summary = {{"adapter", folder.string()},
                            {"method", method->name()},
                            {"steps", result.steps},
                            {"seconds", result.seconds},
                            {"loss", result.last_loss},
                            {"leak_max_abs_diff", leak.max_abs_diff},
                            {"adapter_bytes", std::filesystem::file_size(folder / "adapter_model.safetensors")}};
  if (start.router != nullptr) {
    const SteCalibration& pairs = trainer.calibration();
    summary.update({{"dominance", *std::max_element(result.largest_shares.begin(), result.largest_shares.end())},
                    {"pairs_kept_start", pairs.start},
                    {"pairs_kept_trained", pairs.trained},
                    {"pairs_kept", pairs.calibrated}});
    log_info("pairs kept: {:.2f}% at the start, {:.2f}% after training, {:.2f}% with potentials calibrated again",
             100 * pairs.start, 100 * pairs.trained, 100 * pairs.calibrated);
  }
  add_eval(summary, "start", result.start_eval);
  add_eval(summary, "best", result.best_eval);
  if (result.best_eval) summary["best_step"] = result.best_step;
  return summary;
}

std::string LmSteTraining::describe(const nlohmann::json& summary) {
  const auto number = [&](const char* name) { return summary[name].get<double>(); };
  std::string line = fmt::format(
      "adapter {} ({} KB) for {} attention after {} steps in {:.0f} s; largest change in the leak probe {:.2g}",
      summary["adapter"].get<std::string>(), summary["adapter_bytes"].get<int64_t>() / 1000,
      summary["method"].get<std::string>(), summary["steps"].get<int64_t>(), number("seconds"),
      number("leak_max_abs_diff"));
  if (summary.contains("pairs_kept")) {
    line += fmt::format("; pairs kept {:.2f}% (before {:.2f}%), largest list {:.2f}% of keys",
                        100 * number("pairs_kept"), 100 * number("pairs_kept_start"), 100 * number("dominance"));
  }
  if (summary.contains("best_step")) {
    line += fmt::format("; on --eval-data {:.4f} after step {} (before {:.4f}), copying {:.4f} ({:.4f})",
                        number("best_eval_loss"), summary["best_step"].get<int64_t>(), number("start_eval_loss"),
                        number("best_eval_copy_nll"), number("start_eval_copy_nll"));
  }
  return line;
}

}  // namespace focus
