#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/token_windows.h"
#include "models/model.h"
#include "train/checkpoint.h"
#include "train/layer_trainer.h"

namespace focus {

/// Training of routers with every weight of the model frozen: stages `output` and `lists`.
struct CentroidTrainingOptions {
  DistillationOptions distillation;
  int64_t steps = 44;         ///< Training windows over both stages.
  double lists_share = 0.38;  ///< Share of the steps that stage `lists` gets.
  int64_t updates_per_step =
      3;                     ///< Updates of every layer on each window: the forward pass is the larger part of a step.
  int64_t list_windows = 8;  ///< Further windows whose keys the lists are built from and calibrated on.
  double repeats = 0.34;     ///< Share of the windows that end with a repeat of an earlier passage (repeats.h).

  int64_t list_steps() const;
  int64_t index_steps() const { return steps - list_steps(); }
};

/// What a step did, averaged over the layers (dominance: the largest).
struct StepResult {
  int64_t step = 0;  ///< Steps done, this one included.
  std::string stage;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;
  double pairs_kept = 0;  ///< Of the hard mask at the sampled query rows.
  double dominance = 0;
  std::vector<double> layer_loss;
};

/// Trains all layers side by side, window by window: one forward pass of the frozen model (no output head, no gradient
/// through it), then every layer's updates on what it saw, layers spread over the threads. Nothing of a window is kept
/// but, once, the key features of `list_windows` windows.
class CentroidTrainer {
 public:
  /// `next_window` gives the next training window.
  CentroidTrainer(const CausalLM& model, const CentroidTrainingOptions& options,
                  std::function<TrainWindows::Window()> next_window);

  bool done() const { return step_ == options_.steps; }
  int64_t step() const { return step_; }
  /// One training step (before the first of stage `lists`, also the building of lists: `note` says so). Throws Error on
  /// a loss that is not finite.
  StepResult train_step(const std::function<void(const std::string&)>& note = {});
  /// Hard calibration at the end. Returns the largest share of a list in each layer.
  std::vector<double> calibrate();

  /// The trained routers by layer.
  std::map<int64_t, LayerRouter> routers() const;

  /// Tensors to go on from; the data position is the caller's.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  void load_state(int64_t step, const std::vector<std::pair<std::string, at::Tensor>>& state);

 private:
  /// Runs the frozen model over one window and hands layers, a few at a time and spread over the threads, to `work`.
  void for_each_layer(const TrainWindows::Window& window,
                      const std::function<void(int64_t, const DistillationLayer&)>& work);
  void build_lists(const std::function<void(const std::string&)>& note);
  /// The next window of the data; `index` counts the windows of the run.
  TrainWindows::Window window(int64_t index);

  const CausalLM& model_;
  CentroidTrainingOptions options_;
  std::function<TrainWindows::Window()> next_window_;
  std::vector<LayerTrainer> layers_;
  int64_t step_ = 0;
};

}  // namespace focus
