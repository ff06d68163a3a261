#include "train/training_run.h"

#include <chrono>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/progress.h"
#include "train/checkpoint.h"
#include "train/metrics_log.h"

namespace focus {

namespace {

namespace fs = std::filesystem;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

nlohmann::json metrics_line(const StepResult& step, int64_t tokens, double tokens_per_second) {
  nlohmann::json line = {{"step", step.step},
                         {"stage", step.stage},
                         {"loss", step.loss},
                         {"lr", step.learning_rate},
                         {"tokens", tokens},
                         {"tokens_per_s", tokens_per_second},
                         {"dominance", step.dominance > 0 ? nlohmann::json(step.dominance) : nlohmann::json()},
                         {"pairs_kept", step.pairs_kept},
                         {"grad_norm", step.grad_norm},
                         {"layer_loss", step.layer_loss}};
  if (step.auxiliary_loss) line["auxiliary_loss"] = *step.auxiliary_loss;
  return line;
}

void add_figures(nlohmann::json& line, const EvalFigures& figures) {
  line["eval_loss"] = figures.loss;
  if (figures.copy) line["eval_copy_nll"] = *figures.copy;
  if (figures.pairs_kept) line["eval_pairs_kept"] = *figures.pairs_kept;
  line.update(figures.further);
}

/// The figures of a line of the metrics, if it has any.
std::optional<EvalFigures> figures_of(const nlohmann::json& line) {
  const auto number = [&](const char* name) {
    return line.contains(name) && line[name].is_number() ? std::optional(line[name].get<double>()) : std::nullopt;
  };
  const std::optional<double> loss = number("eval_loss");
  if (!loss) return std::nullopt;
  EvalFigures figures;
  figures.loss = *loss;
  figures.copy = number("eval_copy_nll");
  figures.pairs_kept = number("eval_pairs_kept");
  return figures;
}

/// The measurements of a run so far.
class Measurements {
 public:
  explicit Measurements(TrainingRunResult& result) : result_(result) {}

  /// Whether these are the best so far.
  bool add(const EvalFigures& figures, int64_t step) {
    result_.last_eval = figures;
    if (step == 0) result_.start_eval = figures;
    const bool best = !result_.best_eval || figures.score() < result_.best_eval->score();
    since_best_ = best ? 0 : since_best_ + 1;
    if (!best) return false;
    result_.best_eval = figures;
    result_.best_step = step;
    return true;
  }
  int64_t since_best() const { return since_best_; }

 private:
  TrainingRunResult& result_;
  int64_t since_best_ = 0;
};

/// Throws Error on all processes when one of them has other data, another model or other settings.
void check_same_run(Collective* processes, const nlohmann::json& identity, const TrainWindows& windows) {
  if (processes == nullptr) return;
  for (const auto& [name, value] : identity.items()) require_same(processes, name, json_text(value));
  const nlohmann::json data = windows.state();
  for (const auto& [name, value] : data.items()) require_same(processes, "the data's " + name, json_text(value));
}

}  // namespace

void require_no_checkpoints(const fs::path& folder) {
  const std::optional<fs::path> found = latest_checkpoint(folder);
  if (!found) return;
  fail("{} holds a checkpoint of an earlier run ({}): go on with --resume, or name another --out", folder.string(),
       found->filename().string());
}

void require_same_settings(const nlohmann::json& saved, const nlohmann::json& now, const fs::path& where,
                           const std::string& what) {
  // As a file holds it: names of files may be no UTF-8.
  const nlohmann::json written = parse_json(json_text(now), "settings");
  for (const auto& [name, value] : written.items()) {
    const nlohmann::json before = saved.contains(name) ? saved.at(name) : nlohmann::json();
    require(before == value,
            "{}: this {} is of a run with {} = {}, but now it is {}; use another --out or the same settings",
            where.string(), what, name, json_text(before), json_text(value));
  }
}

TrainingRunResult run_training(Trainer& trainer, const TrainingRunOptions& options, TrainWindows& windows) {
  const auto start = std::chrono::steady_clock::now();
  Collective* const processes = options.processes;
  const bool writes = processes == nullptr || processes->rank() == 0;
  check_same_run(processes, options.identity, windows);
  const auto tokens = [&] { return windows.position() * windows.length(); };
  std::optional<fs::path> last_saved;
  double seconds_before = 0;  // Of the calls that this one goes on from, up to their checkpoint.
  const auto seconds = [&] { return seconds_before + seconds_since(start); };
  if (options.resume) {
    last_saved = latest_checkpoint(options.out);
    if (last_saved) {
      const Checkpoint checkpoint = load_checkpoint(*last_saved);
      require_same_settings(checkpoint.state.value("identity", nlohmann::json::object()), options.identity, *last_saved,
                            "checkpoint");
      trainer.load_state(checkpoint.step, checkpoint.tensors);
      windows.restore(checkpoint.state.value("data", nlohmann::json::object()));
      seconds_before = checkpoint.state.value("seconds", 0.0);
      log_info("resuming from {} (step {} of {})", last_saved->string(), checkpoint.step, trainer.total_steps());
    } else {
      log_info("no checkpoint in {}: starting from the beginning", options.out.string());
    }
  }
  require_same(processes, "the step to go on from", std::to_string(trainer.step()));
  const auto save = [&] {
    if (!writes) return;
    Checkpoint checkpoint;
    checkpoint.step = trainer.step();
    checkpoint.state = {
        {"identity", options.identity}, {"data", windows.state()}, {"tokens", tokens()}, {"seconds", seconds()}};
    checkpoint.tensors = trainer.state();
    save_checkpoint(options.out, checkpoint, options.save_total_limit);
    last_saved = options.out / fmt::format("checkpoint-{}", trainer.step());
  };

  if (writes && options.on_start) options.on_start();
  std::optional<MetricsLog> metrics;
  if (writes) metrics.emplace(options.out / "metrics.jsonl", trainer.step());
  TrainingRunResult result;
  Measurements measured(result);
  if (metrics) {
    for (const nlohmann::json& line : metrics->kept()) {
      if (const auto figures = figures_of(line)) measured.add(*figures, line.value("step", int64_t{0}));
    }
  }
  const auto write = [&](const nlohmann::json& line) {
    if (metrics) metrics->write(line);
    if (options.on_metrics && writes) options.on_metrics(line);
  };
  const auto evaluate = [&](nlohmann::json& line) {
    const EvalFigures figures = options.evaluate();
    add_figures(line, figures);
    if (measured.add(figures, trainer.step()) && options.on_best && writes) options.on_best();
  };
  const auto stopped = [&] { return options.patience > 0 && measured.since_best() >= options.patience; };
  Progress progress("training", trainer.total_steps(), "steps", trainer.step());
  const InterruptGuard guard;
  const int64_t tokens_before = tokens();
  try {
    if (options.evaluate && options.evaluate_start && trainer.step() == 0) {
      nlohmann::json line = {{"step", 0}};
      evaluate(line);
      write(line);
    }
    while (!trainer.done() && !stopped() && !any_process(processes, interrupted())) {
      const StepResult step = trainer.train_step([&](const std::string& what) { progress.note(what); });
      result.last_loss = step.loss;
      nlohmann::json line =
          metrics_line(step, tokens(), static_cast<double>(tokens() - tokens_before) / seconds_since(start));
      const bool due = trainer.done() || (options.eval_every > 0 && trainer.step() % options.eval_every == 0);
      if (options.evaluate && due) evaluate(line);
      write(line);
      progress.note(fmt::format("{} loss {:.4f}, pairs {:.1f}%", step.stage, step.loss, 100 * step.pairs_kept));
      progress.set(trainer.step());
      if (options.save_every > 0 && trainer.step() % options.save_every == 0 && !trainer.done()) save();
    }
    result.finished = trainer.done() || stopped();
    if (result.finished) {
      result.largest_shares = trainer.calibrate();
    } else {
      save();
    }
  } catch (const std::exception& e) {
    if (!last_saved) throw;
    fail("step {}: {} (the checkpoint {} is kept)", trainer.step() + 1, e.what(), last_saved->string());
  }
  result.steps = trainer.step();
  result.seconds = seconds();
  result.routers = trainer.routers();
  return result;
}

}  // namespace focus
