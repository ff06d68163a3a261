#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace focus {

/// How the learning rate moves over the updates of one stage.
enum class LrScheduler { kConstant, kLinear, kCosine, kWsd };

/// Factor of the base learning rate at `update` (0-based) of `total`: linear warm-up over `warmup` updates, then
/// constant, linear to zero over the last 60% of all updates, a half cosine to zero, or (warm-up, stable, decay) linear
/// to zero over the last 20%.
double lr_factor(LrScheduler scheduler, int64_t update, int64_t total, int64_t warmup);

/// A tensor that Adam moves.
struct AdamParameter {
  std::string name;
  at::Tensor tensor;  ///< A leaf that takes gradients.
  double rate = 1.0;  ///< Factor of the learning rate.
};

/// Adam (LibTorch's) on a few named tensors, with gradient clipping by their joint norm and a state that can be saved.
class Adam {
 public:
  Adam(std::vector<AdamParameter> parameters, double beta1, double beta2);
  ~Adam();
  Adam(Adam&&) noexcept;
  Adam& operator=(Adam&&) noexcept;

  /// One update from the gradients in place, which are cleared. Returns the gradients' norm before clipping.
  double step(double learning_rate, double max_grad_norm);

  /// Moments and step counts by name, for a checkpoint; empty before the first update.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  /// Restores what state() gave. Throws Error naming a missing or mis-shaped tensor.
  void load_state(const std::vector<std::pair<std::string, at::Tensor>>& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace focus
