#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/routing/router.h"

namespace focus {

/// What a step did, averaged over the layers (dominance: the largest).
struct StepResult {
  int64_t step = 0;  ///< Steps done, this one included.
  std::string stage;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;
  double pairs_kept = 0;  ///< Of the hard mask at the sampled query rows.
  double dominance = 0;
  std::optional<double> auxiliary_loss;  ///< What is added to the loss beside it, before its weight.
  std::vector<double> layer_loss;        ///< Empty where the loss is one of the whole model.
};

/// A way to train: what run_training needs to know of it. Everything
/// random depends on the seed and the step, so that a trainer with loaded state goes on as the one that saved it.
class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual int64_t total_steps() const = 0;
  /// Steps done.
  virtual int64_t step() const = 0;
  bool done() const { return step() == total_steps(); }
  /// One step; `note` hears of longer work in between. Throws Error on a loss that is not finite.
  virtual StepResult train_step(const std::function<void(const std::string&)>& note) = 0;
  /// After the last step. Where routers are trained: makes the balance potentials fit hard assignments and returns the
  /// largest share of a list in each layer.
  virtual std::vector<double> calibrate() { return {}; }
  /// The trained routers by layer, if routers are what is trained.
  virtual std::map<int64_t, LayerRouter> routers() const { return {}; }
  /// Tensors to go on from, beside the position in the data.
  virtual std::vector<std::pair<std::string, at::Tensor>> state() const = 0;
  virtual void load_state(int64_t step, const std::vector<std::pair<std::string, at::Tensor>>& state) = 0;
};

/// `chosen`, or all layers when it is empty. Throws Error unless they are ascending and below `count`.
std::vector<int64_t> trained_layers(const std::vector<int64_t>& chosen, int64_t count);

}  // namespace focus
