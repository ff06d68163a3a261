#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace focus {

enum class OptimizerKind { kAdamW, kSgd };

struct ModelOptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  /// Decoupled (Loshchilov and Hutter 2019), for AdamW; of tensors with two dimensions or more, so neither of biases
  /// nor of norms.
  double weight_decay = 0.0;
};

/// AdamW (ATen's fused kernel) or plain SGD on the weights of a model, with gradient clipping by their joint norm.
class ModelOptimizer {
 public:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  /// `parameters` are contiguous leaves that take gradients.
  ModelOptimizer(NamedTensors parameters, const ModelOptimizerOptions& options);

  /// One update from the gradients in place, which are released. Tensors without a gradient stay as they are. Returns
  /// the gradients' norm before clipping (0 as `max_grad_norm`: no clipping). Throws Error, before any change, for a
  /// norm that is not finite.
  double step(double learning_rate, double max_grad_norm);

  /// Moments by name and the number of updates, for a checkpoint (no copies).
  NamedTensors state() const;
  /// Restores what state() gave. Throws Error naming a missing or mis-shaped tensor.
  void load_state(const NamedTensors& state);

 private:
  struct Slot {
    std::string name;
    at::Tensor tensor, exp_avg, exp_avg_sq;
    at::Tensor updates;  // float32 scalar, as the fused kernel wants it
  };
  ModelOptimizerOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace focus
