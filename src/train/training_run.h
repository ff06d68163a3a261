#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/token_windows.h"
#include "dist/collective.h"
#include "train/trainer.h"

namespace focus {

/// A whole run of training: steps, metrics, checkpoints, interruption.
struct TrainingRunOptions {
  std::filesystem::path out;       ///< metrics.jsonl and checkpoints go here.
  int64_t save_every = 0;          ///< Checkpoint every so many steps; 0: only when interrupted.
  int64_t save_total_limit = 2;    ///< Newest checkpoints kept.
  bool resume = false;             ///< Go on from the newest checkpoint in `out`, if there is one.
  nlohmann::json identity;         ///< What must be equal for a checkpoint to be continued (model, data, settings).
  std::function<void()> on_start;  ///< Called once everything is checked, before anything in `out` changes.
  std::function<void(const nlohmann::json&)> on_metrics;  ///< Sees each line of metrics.jsonl.
  std::function<double()> evaluate;  ///< Loss on other text; measured every `eval_every` steps and at the end.
  std::function<nlohmann::json()> eval_figures;  ///< Further figures of the last measurement, for its line.
  int64_t eval_every = 0;                        ///< 0: at the end only.
  std::function<void()> on_best;  ///< Called after a measurement below all before it, those of resumed runs too.
  /// Processes that train together; null: this one alone. All read checkpoints and call `evaluate`, rank 0 alone writes
  /// (metrics, checkpoints, `on_metrics`, `on_best`), and a signal to any of them stops all after the same step.
  Collective* processes = nullptr;
};

struct TrainingRunResult {
  bool finished = false;  ///< False: interrupted, a checkpoint is saved.
  int64_t steps = 0;
  double seconds = 0;                               ///< Of this call.
  double last_loss = 0;                             ///< Of the last step.
  std::optional<double> eval_loss, best_eval_loss;  ///< The last measurement and the lowest.
  std::vector<double> largest_shares;               ///< After calibration, by layer.
  std::map<int64_t, LayerRouter> routers;
};

/// Throws Error if `folder` holds checkpoints: a new run would mix with the one that they are of.
void require_no_checkpoints(const std::filesystem::path& folder);

/// Trains until all steps are done or a signal comes (base/interrupt.h). metrics.jsonl holds one object a step
/// (with `eval_loss` where that was measured); on resuming it is cut back to the checkpoint's step. When a step fails
/// (loss not finite, out of memory) the last checkpoint stays, and the Error names it. Throws Error if a checkpoint
/// belongs to a run with other settings, naming the first that differs, or if the processes differ in data or settings,
/// naming the rank. `windows` is where the trainer takes its
/// windows from.
TrainingRunResult run_training(Trainer& trainer, const TrainingRunOptions& options, TrainWindows& windows);

}  // namespace focus
