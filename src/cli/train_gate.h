#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "cli/session.h"
#include "cli/train_routers.h"
#include "cli/train_weights.h"
#include "cli/training_flags.h"
#include "train/gate_trainer.h"

namespace focus {

/// The first windows of --eval-data, in an order that no --seed changes; none without --eval-data.
std::vector<TrainWindows::Window> read_eval_windows(const Session& session, const CommonOptions& common,
                                                    const EvalFlags& eval, int64_t context);

/// A number for these windows; null for none: what is measured is part of what a checkpoint holds.
nlohmann::json eval_identity(const std::vector<TrainWindows::Window>& windows);

/// Has a run measure the trainer's groups, if these are watched: eval_loss and eval_dominance, eval_dominance_mean,
/// eval_dead_groups and eval_stability of metrics.jsonl.
void watch_groups(GateTrainer& trainer, const EvalFlags& eval, TrainingRunOptions& options);

/// What became of the groups, out of the last measurement: `soft` (under the soft gate), `routed` (hard causal routing
/// by `routers`), `full` (full attention), `paths`. Written to `out`/groups.json as well.
nlohmann::json summarise_groups(const CausalLM& model, const GateTrainer& trainer, const RoutingConfig& routing,
                                const std::map<int64_t, LayerRouter>& routers,
                                const std::vector<TrainWindows::Window>& windows, const std::filesystem::path& out);

/// The second phase of --train two-phase --objective lm-gate: all weights and the routers of `adapter` together under
/// the soft gate. Writes `out`/model. Returns the summary; nothing when interrupted, with a checkpoint saved.
std::optional<nlohmann::json> fine_tune_under_gate(Session& session, const RouterTraining& routers,
                                                   const WeightTraining& weights, const EvalFlags& eval,
                                                   const std::shared_ptr<const TokenSource>& text,
                                                   const CommonOptions& common, const TrainingFlags& flags,
                                                   const std::filesystem::path& adapter);

}  // namespace focus
