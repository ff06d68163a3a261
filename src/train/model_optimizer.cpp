#include "train/model_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <map>

#include "base/error.h"

namespace focus {

namespace {

/// The Euclidean norm of all gradients together, added up in float64.
double joint_norm(const std::vector<at::Tensor>& gradients) {
  if (gradients.empty()) return 0;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& gradient : gradients) norms.push_back(at::linalg_vector_norm(gradient).to(at::kDouble));
  return at::linalg_vector_norm(at::stack(norms)).item<double>();
}

}  // namespace

ModelOptimizer::ModelOptimizer(NamedTensors parameters, const ModelOptimizerOptions& options) : options_(options) {
  for (auto& [name, tensor] : parameters) {
    require(tensor.is_leaf() && tensor.requires_grad() && tensor.is_contiguous(),
            "optimizer: {} is not a contiguous leaf that takes gradients", name);
    Slot slot{.name = name, .tensor = tensor, .exp_avg = {}, .exp_avg_sq = {}, .updates = at::zeros({}, at::kFloat)};
    if (options.kind == OptimizerKind::kAdamW) {
      slot.exp_avg = at::zeros_like(tensor).detach();
      slot.exp_avg_sq = at::zeros_like(tensor).detach();
    }
    slots_.push_back(std::move(slot));
  }
}

double ModelOptimizer::step(double learning_rate, double max_grad_norm) {
  const at::NoGradGuard no_grad;
  // Decayed tensors and others.
  struct Group {
    std::vector<at::Tensor> tensors, gradients, exp_avgs, exp_avg_sqs, updates;
  };
  std::array<Group, 2> groups;
  std::vector<at::Tensor> gradients;
  for (Slot& slot : slots_) {
    if (!slot.tensor.grad().defined()) continue;
    Group& group = groups[slot.tensor.dim() >= 2 && options_.weight_decay > 0 ? 1 : 0];
    group.tensors.push_back(slot.tensor);
    group.gradients.push_back(slot.tensor.grad().contiguous());
    group.exp_avgs.push_back(slot.exp_avg);
    group.exp_avg_sqs.push_back(slot.exp_avg_sq);
    group.updates.push_back(slot.updates);
    gradients.push_back(group.gradients.back());
  }
  const double norm = joint_norm(gradients);
  require(std::isfinite(norm), "the gradient is not finite; a lower --learning-rate may help");
  if (max_grad_norm > 0 && norm > max_grad_norm) {
    // The small constant is torch.nn.utils.clip_grad_norm_'s.
    at::_foreach_mul_(gradients, max_grad_norm / (norm + 1e-6));
  }
  for (size_t g = 0; g < groups.size(); ++g) {
    Group& group = groups[g];
    if (group.tensors.empty()) continue;
    const double decay = g == 1 ? options_.weight_decay : 0.0;
    if (options_.kind == OptimizerKind::kAdamW) {
      at::_foreach_add_(group.updates, 1);
      at::_fused_adamw_(group.tensors, group.gradients, group.exp_avgs, group.exp_avg_sqs, /*max_exp_avg_sqs=*/{},
                        group.updates, learning_rate, options_.beta1, options_.beta2, decay, options_.epsilon,
                        /*amsgrad=*/false, /*maximize=*/false);
    } else {
      at::_foreach_add_(group.updates, 1);
      at::_foreach_add_(group.tensors, group.gradients, -learning_rate);
    }
  }
  for (Slot& slot : slots_) slot.tensor.mutable_grad().reset();
  return norm;
}

ModelOptimizer::NamedTensors ModelOptimizer::state() const {
  NamedTensors saved;
  for (const Slot& slot : slots_) {
    saved.emplace_back(slot.name + ".updates", slot.updates);
    if (options_.kind != OptimizerKind::kAdamW) continue;
    saved.emplace_back(slot.name + ".exp_avg", slot.exp_avg);
    saved.emplace_back(slot.name + ".exp_avg_sq", slot.exp_avg_sq);
  }
  return saved;
}

void ModelOptimizer::load_state(const NamedTensors& state) {
  const std::map<std::string, at::Tensor> by_name(state.begin(), state.end());
  const at::NoGradGuard no_grad;
  const auto restore = [&](const std::string& name, at::Tensor& target) {
    const auto found = by_name.find(name);
    require(found != by_name.end(), "optimizer state: {} is missing", name);
    require(found->second.sizes() == target.sizes(), "optimizer state: {} has shape [{}], expected [{}]", name,
            fmt::join(found->second.sizes(), ", "), fmt::join(target.sizes(), ", "));
    target.copy_(found->second);
  };
  for (Slot& slot : slots_) {
    restore(slot.name + ".updates", slot.updates);
    if (options_.kind != OptimizerKind::kAdamW) continue;
    restore(slot.name + ".exp_avg", slot.exp_avg);
    restore(slot.name + ".exp_avg_sq", slot.exp_avg_sq);
  }
}

}  // namespace focus
