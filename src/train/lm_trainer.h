#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/method.h"
#include "data/token_windows.h"
#include "dist/collective.h"
#include "models/model.h"
#include "train/attention_schedule.h"
#include "train/gradient_sum.h"
#include "train/model_optimizer.h"
#include "train/optimizer.h"
#include "train/trainer.h"

namespace focus {

/// Training of weights by the language-model loss.
struct LmTrainingOptions {
  std::string stage = "all";  ///< Name in the metrics.
  int64_t steps = 200;        ///< Updates.
  int64_t batch_size = 1;     ///< Windows of one pass.
  int64_t accumulation = 1;   ///< Passes whose gradients add up to an update.
  double learning_rate = 5e-5;
  int64_t warmup_steps = 8;
  double max_grad_norm = 1.0;
  LrScheduler scheduler = LrScheduler::kCosine;
  ModelOptimizerOptions optimizer = {};
  /// Keep only each block's input for the backward pass and compute its inside again there.
  bool activation_checkpointing = false;
  /// Type in which matrix products are computed (ATen's autocast); weights and their updates stay as they are.
  std::optional<at::ScalarType> autocast = {};
  /// Processes that make each step together, every one with its own windows of the same number; null: this one alone.
  Collective* processes = nullptr;
};

/// Trains weights of a model (all of them, or low-rank updates) under the attention that a schedule gives. The loss of
/// a step is the mean over all predicted tokens of all its windows, whatever pass they are in: windows with more
/// documents predict fewer tokens and weigh less. Under a sparse method the cost of attention follows the pairs it
/// keeps, forward and backward. With several processes the mean is over the windows of all, and their weights stay
/// equal bit for bit.
class LmTrainer : public Trainer {
 public:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  /// `trained` are leaves that the model reads, float32; they are made to take gradients. `next_window` gives the next
  /// training window, all of one length. Throws Error for weights of another dtype.
  LmTrainer(const CausalLM& model, AttentionSchedule& attention, NamedTensors trained, const LmTrainingOptions& options,
            std::function<TrainWindows::Window()> next_window);
  ~LmTrainer() override;

  int64_t total_steps() const override { return options_.steps; }
  int64_t step() const override { return step_; }
  StepResult train_step(const std::function<void(const std::string&)>& note) override;
  NamedTensors state() const override;
  void load_state(int64_t step, const NamedTensors& state) override;

 private:
  struct Batch {
    at::Tensor ids;      ///< int64 [B, T]
    at::Tensor targets;  ///< int64 [B, T], -1 where nothing is predicted
    ForwardOptions options;
  };
  Batch next_batch() const;
  /// Adds the batch's gradients, its loss divided by `count` predicted tokens; returns that loss. In the `last` pass of
  /// a step gradients are summed over the processes as they come.
  double accumulate(AttentionMethod& method, const Batch& batch, int64_t count, bool last);
  double accumulate_by_block(AttentionMethod& method, const Batch& batch, int64_t count, bool last);

  const CausalLM& model_;
  AttentionSchedule& attention_;
  NamedTensors trained_;
  LmTrainingOptions options_;
  std::function<TrainWindows::Window()> next_window_;
  ModelOptimizer optimizer_;
  GradientSum sum_;
  int64_t step_ = 0;
};

}  // namespace focus
