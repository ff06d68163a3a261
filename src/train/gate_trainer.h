#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/routing/config.h"
#include "data/token_windows.h"
#include "models/model.h"
#include "train/group_balance.h"
#include "train/group_study.h"
#include "train/optimizer.h"
#include "train/soft_gate_attention.h"
#include "train/trainer.h"

namespace focus {

/// Training of the paper's form: symmetric groups under the soft gate, by the language-model loss.
struct GateTrainingOptions {
  RoutingConfig routing;            ///< With symmetric.
  std::vector<int64_t> layers;      ///< Layers that get groups, ascending; empty: all. The others stay dense.
  double sharpness = 5.0;           ///< lambda of the gate.
  GroupBalance balance;             ///< How groups are kept even.
  int64_t steps = 200;              ///< One window each.
  int64_t calibration_windows = 8;  ///< Further windows whose scores the potentials are calibrated on.
  double learning_rate = 3e-3;      ///< Of the routers.
  /// Of the model's weights, which are trained together with the routers; absent: they are frozen.
  std::optional<double> weights_learning_rate = {};
  /// Routers to go on from; empty: random ones.
  std::map<int64_t, LayerRouter> start = {};
  /// Windows on which evaluate() watches the groups.
  std::vector<TrainWindows::Window> eval_windows = {};
  int64_t warmup_steps = 8;
  double max_grad_norm = 1.0;
  LrScheduler scheduler = LrScheduler::kCosine;
  int64_t seed = 0;
};

/// Trains projection and centroids of all layers together, and on demand all weights of the model with them: one
/// forward and one backward pass through the model a step, on the mean cross entropy of the window's next tokens. Adam
/// without weight decay; gradients are clipped by their joint norm. Windows need far pairs: more tokens than window +
/// sinks + 1.
class GateTrainer : public Trainer {
 public:
  /// `next_window` gives the next training window. Throws Error for routers to start from that lack a layer, and for
  /// weights to train that are not float32.
  GateTrainer(const CausalLM& model, const GateTrainingOptions& options,
              std::function<TrainWindows::Window()> next_window);
  ~GateTrainer() override;

  int64_t total_steps() const override { return options_.steps; }
  int64_t step() const override { return step_; }
  /// `dominance` and `pairs_kept` are those of the k best memberships as a hard mask.
  StepResult train_step(const std::function<void(const std::string&)>& note) override;
  /// Potentials with which the k = 1 assignments of single tokens are even, so that hard causal routing is balanced
  /// without Sinkhorn: from the scores of `calibration_windows` windows under the soft gate. With softmax they stay 0,
  /// as in training.
  std::vector<double> calibrate() override;
  std::map<int64_t, LayerRouter> routers() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() const override;
  void load_state(int64_t step, const std::vector<std::pair<std::string, at::Tensor>>& state) override;

  /// Measures the groups on `eval_windows` under the soft gate, after the last step the escape paths too. Returns the
  /// loss.
  double evaluate();
  /// The last measurement and the escape paths; empty before there are any.
  const std::optional<GroupFigures>& figures() const { return figures_; }
  const std::optional<EscapePaths>& paths() const { return paths_; }

 private:
  /// Gives the random projections their scale, so that first scores are neither flat nor decided.
  void initialise(const TrainWindows::Window& window);
  /// Final states [T, d] under the soft gate.
  at::Tensor forward(const TrainWindows::Window& window);
  void make_optimizer();
  /// What moves routers beside the gradient, from the pass just made.
  void move_by_tokens();

  const CausalLM& model_;
  GateTrainingOptions options_;
  std::function<TrainWindows::Window()> next_window_;
  std::map<int64_t, LayerRouter> routers_;
  SoftGateAttention attention_;
  std::vector<std::pair<std::string, at::Tensor>> weights_;  // Those trained.
  std::optional<GroupStudy> study_;
  std::optional<GroupFigures> figures_;
  std::optional<EscapePaths> paths_;
  std::unique_ptr<Adam> adam_;
  bool prepared_ = false;  // Whether adam_ fits what is trained; it stays null where nothing takes gradients.
  int64_t step_ = 0;
};

}  // namespace focus
