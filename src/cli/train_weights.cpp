#include "cli/train_weights.h"

#include <algorithm>
#include <utility>

#include "attention/methods/focus_attention.h"
#include "attention/methods/full.h"
#include "attention/routing/adapter.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cli/device.h"
#include "train/data_parallel.h"
#include "weights/dtype.h"

namespace focus {

namespace {

constexpr const char* kLoraFlags[] = {"lora-r", "lora-alpha", "target-modules"};
constexpr double kLearningRateLora = 2e-4, kLearningRateScratch = 1e-3;

}  // namespace

void WeightTraining::declare(OptionTable& table) {
  table.section("Training weights");
  table.add("batch-size", &training_.batch_size, "windows of one pass").at_least(1);
  table.add("gradient-accumulation-steps", &training_.accumulation, "passes whose gradients add up to an update")
      .at_least(1);
  table.add_choice("optimizer", &training_.optimizer.kind,
                   {{"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}}, "what makes updates of gradients");
  table.add("adam-beta2", &training_.optimizer.beta2, "decay of AdamW's mean of squares").at_least(0).below(1);
  table.add("weight-decay", &training_.optimizer.weight_decay, "of AdamW; norms and biases are left out").at_least(0);
  table.add("activation-checkpointing", &training_.activation_checkpointing,
            "keep only the input of each block for the backward pass and compute the rest again");
  table.add("autocast", &autocast_, "type of matrix products; weights stay float32").one_of({"none", "bfloat16"});
  table.add("lora-r", &lora_.rank, "rank of low-rank updates").at_least(1);
  table.add("lora-alpha", &lora_.alpha, "updates are multiplied by this divided by the rank").above(0);
  table.add("target-modules", &lora_.targets, "modules that get low-rank updates, by the ends of their names")
      .default_text("as in PEFT: q_proj, v_proj; of GPT-2 c_attn");
  table.add("save-dtype", &save_dtype_, "type of the saved model's weights").one_of({"float32", "bfloat16"});
}

std::vector<const char*> WeightTraining::flags() {
  return {"batch-size", "gradient-accumulation-steps", "optimizer",  "adam-beta2",  "weight-decay",
          "autocast",   "activation-checkpointing",    "save-dtype", kLoraFlags[0], kLoraFlags[1],
          kLoraFlags[2]};
}

void WeightTraining::resolve(const OptionTable& table, const TrainingFlags& flags) {
  what_ = flags.what;
  const auto refuse = [&](const char* flag, const std::string& where) {
    if (table.changed(flag)) fail_usage("--{} has no meaning with {}", flag, where);
  };
  for (const char* flag : kLoraFlags) {
    if (what_ != "lora") refuse(flag, "--train " + what_);
  }
  if (what_ == "lora") refuse("save-dtype", "--train lora: its tensors are float32");
  if (training_.optimizer.kind == OptimizerKind::kSgd) {
    for (const char* flag : {"adam-beta2", "weight-decay"}) refuse(flag, "--optimizer sgd");
  }
  training_.stage = what_ == "two-phase" ? "all" : what_;
  training_.steps = flags.max_steps.value_or(training_.steps);
  if (what_ == "lora") training_.learning_rate = kLearningRateLora;
  if (what_ == "scratch") training_.learning_rate = kLearningRateScratch;
  training_.learning_rate = flags.learning_rate.value_or(training_.learning_rate);
  training_.scheduler = flags.scheduler;
  training_.warmup_steps = flags.warmup_steps;
  training_.max_grad_norm = flags.max_grad_norm;
  if (autocast_ != "none") training_.autocast = parse_dtype(autocast_);
}

std::optional<nlohmann::json> WeightTraining::run(Session& session, AttentionSchedule& attention,
                                                  const nlohmann::json& attention_settings,
                                                  const std::shared_ptr<const TokenSource>& text,
                                                  const CommonOptions& common, const TrainingFlags& flags,
                                                  const std::filesystem::path& out, TrainingEvaluation& evaluation,
                                                  Collective* processes) {
  CausalLM& model = *session.model;
  const int64_t context = flags.context_for(model, kWeightsContext);
  TrainingRunOptions options = flags.run_options(common, out, context, {});
  options.identity.update(identity(model, attention.current().name(), processes ? processes->size() : 1));
  options.identity.update(attention_settings);
  options.processes = training_.processes = processes;
  TrainWindows windows(text, context, static_cast<uint64_t>(common.seed), common.data.string());
  if (evaluation.given()) {
    evaluation.open(session, common, context);
    options.eval_every = evaluation.every();
    options.evaluate = [&] {
      EvalFigures figures;
      figures.loss = evaluation.loss(model, attention.current(), processes);
      return figures;
    };
    options.on_best = [&] { save(session, attention.current(), common, out / "best"); };
  }
  if (what_ == "lora") {
    lora_parameters_ = attach_lora(model, lora_, static_cast<uint64_t>(common.seed));
  }
  LmTrainer trainer(model, attention, what_ == "lora" ? lora_parameters_ : model.parameters(), training_,
                    [&] { return next_window_of(processes, windows); });
  const InterruptGuard guard;  // What is trained must be written too, whatever comes after the last step.
  const TrainingRunResult result = run_training(trainer, options, windows);
  const bool writes = processes == nullptr || processes->rank() == 0;
  if (!result.finished) {
    if (writes) log_warning("interrupted at step {} of {}; go on with --resume", result.steps, training_.steps);
    return std::nullopt;
  }
  const std::filesystem::path folder = out / (what_ == "lora" ? "adapter" : "model");
  if (writes) save(session, attention.current(), common, folder);
  nlohmann::json summary = {{"train", what_},
                            {"method", attention.current().name()},
                            {what_ == "lora" ? "adapter" : "model", folder.string()},
                            {"steps", result.steps},
                            {"seconds", result.seconds},
                            {"loss", result.last_loss}};
  if (result.last_eval) {
    summary["eval_loss"] = result.last_eval->loss;
    summary["best_eval_loss"] = result.best_eval->loss;
    summary["best"] = (out / "best").string();
  }
  return summary;
}

void WeightTraining::save(const Session& session, const AttentionMethod& method, const CommonOptions& common,
                          const std::filesystem::path& folder, const nlohmann::json& further) const {
  if (what_ == "lora") {
    save_lora(folder, *session.model, lora_, lora_parameters_, common.model.filename().string());
    return;
  }
  const at::ScalarType dtype = *parse_dtype(save_dtype_);
  save_model(folder, *session.model, common.model, dtype);
  Adapter adapter;
  if (const auto* focus = dynamic_cast<const FocusAttention*>(&method)) {
    adapter.router = std::make_shared<const Router>(focus->router());
    adapter.scales = focus->scales();
  } else if (const auto* full = dynamic_cast<const FullAttention*>(&method)) {
    adapter.scales = full->scales();
  }
  if (adapter.router == nullptr && adapter.scales == nullptr) return;
  adapter.base_model_name_or_path = folder.filename().string();
  adapter.base_fingerprint = model_fingerprint(*session.model);
  adapter.module = session.model->attention_module();
  adapter.training = {{"train", what_}, {"max_steps", training_.steps}, {"seed", common.seed}};
  adapter.training.update(further);
  save_adapter(folder / "focus", adapter, at::kFloat);
}

nlohmann::json WeightTraining::identity(const CausalLM& model, const std::string& method, int64_t processes) const {
  nlohmann::json settings = {{"model", model_fingerprint(model)},
                             {"dtype", c10::toString(model.parameters().front().second.scalar_type())},
                             {"train", what_},
                             {"method", method},
                             {"max_steps", training_.steps},
                             {"learning_rate", training_.learning_rate},
                             {"batch_size", processes * training_.batch_size},  // Windows that are passed together.
                             {"gradient_accumulation_steps", training_.accumulation},
                             {"optimizer", training_.optimizer.kind == OptimizerKind::kSgd ? "sgd" : "adamw"},
                             {"adam_beta2", training_.optimizer.beta2},
                             {"weight_decay", training_.optimizer.weight_decay},
                             {"autocast", autocast_}};
  if (what_ == "lora") {
    settings.update({{"lora_r", lora_.rank}, {"lora_alpha", lora_.alpha}, {"target_modules", lora_.targets}});
  }
  return settings;
}

std::string WeightTraining::describe(const nlohmann::json& summary) {
  std::string text = fmt::format(
      "{} after {} steps in {:.0f} s; last loss {:.4f}",
      summary.contains("model") ? summary["model"].get<std::string>() : summary["adapter"].get<std::string>(),
      summary["steps"].get<int64_t>(), summary["seconds"].get<double>(), summary["loss"].get<double>());
  if (summary.contains("eval_loss")) {
    text += fmt::format(", on --eval-data {:.4f} (best {:.4f}, in {})", summary["eval_loss"].get<double>(),
                        summary["best_eval_loss"].get<double>(), summary["best"].get<std::string>());
  }
  return text;
}

}  // namespace focus
