#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/head_scales.h"
#include "data/token_windows.h"
#include "models/model.h"
#include "train/optimizer.h"
#include "train/straight_through_attention.h"
#include "train/trainer.h"

namespace focus {

/// The last stage with frozen weights, lm-ste: the language-model loss through the hard mask.
struct SteTrainingOptions {
  bool lists = true;                ///< Codebooks are trained, straight-through.
  bool scales = true;               ///< The scalars of every layer's query heads are trained.
  double sharpness = 3.0;           ///< Factor of the soft choices' logits, as in stage `lists`.
  int64_t steps = 32;               ///< One window each.
  double repeats = 0.5;             ///< Share of the windows that end with a repeat of an earlier passage (repeats.h).
  int64_t calibration_windows = 4;  ///< Further windows that potentials are calibrated on again.
  double learning_rate = 2e-3;      ///< Of codebooks; scalars take five times as much.
  int64_t warmup_steps = 4;
  double max_grad_norm = 1.0;
  LrScheduler scheduler = LrScheduler::kCosine;
  int64_t seed = 0;
};

/// Shares of pairs that the calibration windows keep: with the router at the start, after the last update, and with
/// potentials calibrated again.
struct SteCalibration {
  double start = 1, trained = 1, calibrated = 1;
};

/// Trains codebooks and two scalars a query head of all layers together: a forward and a backward pass through the
/// frozen model a step, attention sparse and causal as at inference, loss the mean cross entropy of the window's next
/// tokens. Without a router the model attends fully and scalars alone are trained. Potentials follow the lists' shares
/// in small steps on the way and are calibrated on hard assignments in the end.
class SteTrainer : public Trainer {
 public:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  /// `router` null: full attention. `scales` as they are at the start; layers that it lacks start with ones. Throws
  /// Error when there is nothing to train.
  SteTrainer(const CausalLM& model, std::shared_ptr<const Router> router,
             const std::shared_ptr<const HeadScales>& scales, const SteTrainingOptions& options,
             std::function<TrainWindows::Window()> next_window);

  int64_t total_steps() const override { return options_.steps; }
  int64_t step() const override { return step_; }
  StepResult train_step(const std::function<void(const std::string&)>& note) override;
  /// Goes back to what keep_best() remembered, if anything; then, where codebooks are trained, calibrates potentials on
  /// further windows.
  std::vector<double> calibrate() override;
  std::map<int64_t, LayerRouter> routers() const override;
  NamedTensors state() const override;
  void load_state(int64_t step, const NamedTensors& state) override;

  /// The attention as it stands, for evaluation; the same that `eval` would use.
  AttentionMethod& method() { return *method_; }
  /// Copies of the scalars as they stand; null where none are trained and there were none.
  std::shared_ptr<const HeadScales> scales() const;
  /// Remembers the parameters as they stand.
  void keep_best();
  /// What calibrate() found.
  const SteCalibration& calibration() const { return calibration_; }

 private:
  TrainWindows::Window window();
  at::Tensor forward(const TrainWindows::Window& window);
  /// Share of pairs kept in these windows.
  double measure(const std::vector<TrainWindows::Window>& windows);
  void follow_balance();
  void update_router();
  /// Trained tensors and potentials by name.
  NamedTensors parameters() const;
  void restore(const NamedTensors& parameters);

  const CausalLM& model_;
  SteTrainingOptions options_;
  std::function<TrainWindows::Window()> next_window_;
  std::shared_ptr<const Router> start_;    // Null: full attention.
  std::map<int64_t, LayerRouter> layers_;  // Codebooks are leaves where they are trained.
  std::shared_ptr<HeadScales> scales_;     // Leaves where they are trained; null: none.
  std::unique_ptr<AttentionMethod> method_;
  StraightThroughAttention* lists_ = nullptr;  // method_, unless attention is full.
  std::unique_ptr<Adam> adam_;
  NamedTensors best_;
  SteCalibration calibration_;
  int64_t step_ = 0;
};

}  // namespace focus
