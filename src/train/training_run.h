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

/// What was measured on other text during training.
struct EvalFigures {
  double loss = 0;                                    ///< Nats a token.
  std::optional<double> copy;                         ///< Loss on the repeat of a passage, where that counts too.
  std::optional<double> pairs_kept;                   ///< In the measurement of `loss`, where it may change.
  nlohmann::json further = nlohmann::json::object();  ///< Fields for the line of metrics.jsonl that say more.

  /// What the best is the lowest of: the loss, and a quarter of that on repeats. A gain on running text that costs four
  /// times as much retrieval is none.
  double score() const { return loss + 0.25 * copy.value_or(0.0); }
};

/// A whole run of training: steps, metrics, checkpoints, interruption.
struct TrainingRunOptions {
  std::filesystem::path out;       ///< metrics.jsonl and checkpoints go here.
  int64_t save_every = 0;          ///< Checkpoint every so many steps; 0: only when interrupted.
  int64_t save_total_limit = 2;    ///< Newest checkpoints kept.
  bool resume = false;             ///< Go on from the newest checkpoint in `out`, if there is one.
  nlohmann::json identity;         ///< What must be equal for a checkpoint to be continued (model, data, settings).
  std::function<void()> on_start;  ///< Called once everything is checked, before anything in `out` changes.
  std::function<void(const nlohmann::json&)> on_metrics;  ///< Sees each line of metrics.jsonl.
  std::function<EvalFigures()> evaluate;  ///< On other text; called every `eval_every` steps and at the end.
  int64_t eval_every = 0;                 ///< 0: at the end only.
  bool evaluate_start = false;            ///< Before the first step too, as step 0 of the metrics.
  int64_t patience = 0;  ///< Measurements in a row without a new best after which training ends; 0: it goes on.
  std::function<void()> on_best;  ///< Called after a measurement below all before it, those of resumed runs too.
  /// Processes that train together; null: this one alone. All read checkpoints and call `evaluate`, rank 0 alone writes
  /// (metrics, checkpoints, `on_metrics`, `on_best`), and a signal to any of them stops all after the same step.
  Collective* processes = nullptr;
};

struct TrainingRunResult {
  bool finished = false;  ///< False: interrupted, a checkpoint is saved. Steps may be fewer, by `patience`.
  int64_t steps = 0;
  double seconds = 0;                     ///< Of this call and, up to their checkpoint, of those it goes on from.
  double last_loss = 0;                   ///< Of the last step.
  std::optional<EvalFigures> last_eval;   ///< The last measurement,
  std::optional<EvalFigures> best_eval;   ///< that of the lowest score,
  std::optional<EvalFigures> start_eval;  ///< and that before the first step.
  int64_t best_step = 0;                  ///< Steps done at the best one.
  std::vector<double> largest_shares;     ///< After calibration, by layer.
  std::map<int64_t, LayerRouter> routers;
};

/// Throws Error if `folder` holds checkpoints: a new run would mix with the one that they are of.
void require_no_checkpoints(const std::filesystem::path& folder);

/// Throws Error naming the first setting in `now` that `saved` has not with the same value. `where` is what holds the
/// saved ones, a `what`.
void require_same_settings(const nlohmann::json& saved, const nlohmann::json& now, const std::filesystem::path& where,
                           const std::string& what);

/// Trains until all steps are done or a signal comes (base/interrupt.h). metrics.jsonl holds one object a step
/// (with `eval_loss`, `eval_copy_nll` and `eval_pairs_kept` where they were measured); on resuming it is cut back to
/// the checkpoint's step. When a step fails (loss not finite, out of memory) the last checkpoint stays, and the Error
/// names it. Throws Error if a checkpoint belongs to a run with other settings, naming the first that differs, or if
/// the processes differ in data or settings, naming the rank. `windows` is where the trainer takes its windows from.
TrainingRunResult run_training(Trainer& trainer, const TrainingRunOptions& options, TrainWindows& windows);

}  // namespace focus
