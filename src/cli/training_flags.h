#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/run_options.h"
#include "dist/collective.h"
#include "models/model.h"
#include "train/optimizer.h"
#include "train/training_run.h"

namespace focus {

/// Tokens of a training window where all weights are trained and --context is not given.
constexpr int64_t kWeightsContext = 1024;
/// The same of the soft gate, whose backward pass goes through the whole model, so that memory grows with the window.
constexpr int64_t kGateContext = 1024;

/// Flags of `focus train` by which a run is measured on other text.
struct EvalFlags {
  std::optional<std::filesystem::path> data;
  int64_t every = 0;
  int64_t windows = 8;

  void declare(OptionTable& table);
  static std::vector<const char*> flags();
  /// Throws UsageError for flags that need --eval-data.
  void check(const OptionTable& table) const;
};

/// Flags of `focus train` that every way of training has.
struct TrainingFlags {
  std::string what = "centroids";       ///< centroids, all, two-phase, lora or scratch.
  std::optional<int64_t> max_steps;     ///< Absent: as the way of training has it.
  std::optional<int64_t> context;       ///< Tokens a window; absent: see context_for().
  std::optional<double> learning_rate;  ///< As max_steps.
  LrScheduler scheduler = LrScheduler::kCosine;
  int64_t warmup_steps = 8;
  double max_grad_norm = 1.0;
  int64_t save_every = 0;
  int64_t save_total_limit = 2;
  bool resume = false;
  double dist_timeout = 600;       ///< Seconds that one process waits for another.
  std::function<void()> on_start;  ///< As in TrainingRunOptions.

  void declare(OptionTable& table);
  /// Tokens a window for this model: --context, else `usual` or the model's context if that is shorter. Throws
  /// UsageError when --context exceeds the model's.
  int64_t context_for(const CausalLM& model, int64_t usual) const;
  /// Joins the processes that torchrun, mpirun or srun started (dist/launch.h); null when this is the only one. Throws
  /// UsageError for a --dist-timeout without others, Error when they do not come.
  std::unique_ptr<Collective> join(const OptionTable& table) const;
  /// A run that writes to `out`; with --json its metrics go to standard output too. `identity` as in
  /// TrainingRunOptions, to which the settings that all runs have are added.
  TrainingRunOptions run_options(const CommonOptions& common, const std::filesystem::path& out, int64_t context,
                                 const nlohmann::json& identity) const;
};

}  // namespace focus
