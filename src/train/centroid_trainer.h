#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/token_windows.h"
#include "models/model.h"
#include "train/layer_trainer.h"
#include "train/trainer.h"

namespace focus {

/// Training of routers with every weight of the model frozen: stages `output` and `lists`.
struct CentroidTrainingOptions {
  DistillationOptions distillation;
  std::vector<int64_t> layers;  ///< Layers that get a router, ascending; empty: all. The others stay dense.
  int64_t steps = 25;           ///< Training windows over both stages.
  double lists_share = 0.55;    ///< Share of the steps that stage `lists` gets.
  int64_t updates_per_step =
      3;                     ///< Updates of every layer on each window: the forward pass is the larger part of a step.
  int64_t list_windows = 4;  ///< Further windows whose keys the lists are built from and calibrated on.
  double repeats = 0.34;     ///< Share of the windows that end with a repeat of an earlier passage (repeats.h).

  /// Whether head sets get probes by what they gain from them (probe_budget.h), else P each.
  bool probes_by_head = true;
  int64_t budget_windows = 4;  ///< Further windows, half of them with a repeat, that this gain is measured on.

  int64_t list_steps() const;
  int64_t index_steps() const { return steps - list_steps(); }
};

/// Trains all chosen layers side by side, window by window: one forward pass of the frozen model (no output head, no
/// gradient through it), then every layer's updates on what it saw, layers spread over the threads. Nothing of a window
/// is kept but, once, the key features of `list_windows` windows.
class CentroidTrainer : public Trainer {
 public:
  /// `next_window` gives the next training window.
  CentroidTrainer(const CausalLM& model, const CentroidTrainingOptions& options,
                  std::function<TrainWindows::Window()> next_window);

  int64_t total_steps() const override { return options_.steps; }
  int64_t step() const override { return step_; }
  /// Before the first step of stage `lists` the lists are built: `note` says so.
  StepResult train_step(const std::function<void(const std::string&)>& note) override;
  /// Potentials on hard assignments, then the probes of every head set.
  std::vector<double> calibrate() override;
  std::map<int64_t, LayerRouter> routers() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() const override;
  void load_state(int64_t step, const std::vector<std::pair<std::string, at::Tensor>>& state) override;

 private:
  /// Runs the frozen model over one window and hands the trained layers (their index in layers_), a few at a time and
  /// spread over the threads, to `work`.
  void for_each_layer(const TrainWindows::Window& window,
                      const std::function<void(int64_t, const DistillationLayer&)>& work);
  void initialise();
  void build_lists(const std::function<void(const std::string&)>& note);
  void allocate_probes();
  TrainWindows::Window window(int64_t index) { return window(index, options_.repeats); }
  /// The next window of the data; `index` counts the windows of the run, of which the share `repeats` ends with a
  /// repeat.
  TrainWindows::Window window(int64_t index, double repeats);

  const CausalLM& model_;
  CentroidTrainingOptions options_;
  std::function<TrainWindows::Window()> next_window_;
  std::vector<LayerTrainer> layers_;  // One for each of options_.layers.
  int64_t step_ = 0;
};

}  // namespace focus
