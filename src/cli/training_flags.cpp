#include "cli/training_flags.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "cli/output.h"

namespace focus {

void TrainingFlags::declare(OptionTable& table) {
  table.section("Training");
  table
      .add("train", &what,
           "what is trained: centroids, the routers with every weight of the model frozen; all, every weight under "
           "--method; two-phase, centroids and then all weights under them; lora, low-rank updates beside frozen "
           "weights; scratch, a new model after the config.json of --model")
      .one_of({"centroids", "all", "two-phase", "lora", "scratch"});
  table.add("max-steps", &max_steps, "training windows over all stages; of weights and of stage lm-ste: updates")
      .at_least(1)
      .default_text("25, with lm-gate or weights 200, of stage lm-ste 32");
  table.add("context", &context, "tokens a training window")
      .at_least(2)
      .default_text("2048, with lm-gate, lm-ste or weights 1024, or the model's context if that is shorter");
  table.add("learning-rate", &learning_rate, "of Adam")
      .above(0)
      .default_text("0.002, with lm-gate 0.003, all 5e-05, lora 0.0002, scratch 0.001");
  table.add_choice("lr-scheduler", &scheduler,
                   {{"constant", LrScheduler::kConstant},
                    {"linear", LrScheduler::kLinear},
                    {"cosine", LrScheduler::kCosine},
                    {"wsd", LrScheduler::kWsd}},
                   "how the learning rate comes down (wsd: in the last fifth)");
  table.add("warmup-steps", &warmup_steps, "updates until the full learning rate").at_least(0);
  table
      .add("max-grad-norm", &max_grad_norm,
           "gradients (of centroids without lm-gate: of each layer) are clipped to this norm")
      .above(0);
  table.add("save-every", &save_every, "steps between checkpoints, 0: only when interrupted").at_least(0);
  table.add("save-total-limit", &save_total_limit, "newest checkpoints to keep, 0: all").at_least(0);
  table.add("dist-timeout", &dist_timeout, "seconds that processes of one run wait for each other")
      .above(0)
      .unrecorded();
  table.add("resume", &resume, "go on from the newest checkpoint in --out").unrecorded();
}

void EvalFlags::declare(OptionTable& table) {
  table.add(
      "eval-data", &data,
      "text on which the loss is measured during training, with lm-gate the groups and with lm-ste copying too; the "
      "best weights or lists are kept");
  table.add("eval-every", &every, "steps between measurements, 0: at the end only").at_least(0);
  table.add("eval-windows", &windows, "windows measured, with lm-ste as many copying items").at_least(1);
}

std::vector<const char*> EvalFlags::flags() {
  return {"eval-data", "eval-every", "eval-windows"};
}

void EvalFlags::check(const OptionTable& table) const {
  if (data) return;
  for (const char* flag : {"eval-every", "eval-windows"}) {
    if (table.changed(flag)) fail_usage("--{} needs --eval-data", flag);
  }
}

int64_t TrainingFlags::context_for(const CausalLM& model, int64_t usual) const {
  const int64_t positions = model.config().max_positions;
  const int64_t tokens = context.value_or(std::min(usual, positions));
  if (tokens > positions) fail_usage("--context {}: the model's context is {}", tokens, positions);
  return tokens;
}

std::unique_ptr<Collective> TrainingFlags::join(const OptionTable& table) const {
  const Launch launch = read_launch();
  if (launch.size == 1) {
    if (table.changed("dist-timeout")) fail_usage("--dist-timeout needs several processes: start focus by torchrun");
    return nullptr;
  }
  if (launch.rank > 0 && log_level() < LogLevel::kWarning) set_log_level(LogLevel::kWarning);
  auto processes = join_processes(launch, std::chrono::milliseconds(std::llround(1000 * dist_timeout)));
  log_info("{} processes train together", launch.size);
  return processes;
}

TrainingRunOptions TrainingFlags::run_options(const CommonOptions& common, const std::filesystem::path& out,
                                              int64_t tokens, const nlohmann::json& identity) const {
  TrainingRunOptions options;
  options.out = out;
  options.save_every = save_every;
  options.save_total_limit = save_total_limit;
  options.resume = resume;
  options.on_start = on_start;
  options.identity = identity;
  options.identity.update({{"context", tokens},
                           {"warmup_steps", warmup_steps},
                           {"lr_scheduler", static_cast<int>(scheduler)},
                           {"max_grad_norm", max_grad_norm},
                           {"seed", common.seed}});
  if (!common.json) return options;
  options.on_metrics = [closed = false](const nlohmann::json& line) mutable {
    try {
      if (!closed) write_json_line(line);
    } catch (const BrokenPipe&) {
      closed = true;
      log_warning("nobody reads the standard output any more; training goes on, its figures are in metrics.jsonl");
    }
  };
  return options;
}

}  // namespace focus
