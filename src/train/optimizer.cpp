#include "train/optimizer.h"

#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "base/error.h"

namespace focus {

double lr_factor(LrScheduler scheduler, int64_t update, int64_t total, int64_t warmup) {
  const double rise = warmup > 0 ? std::min(1.0, static_cast<double>(update + 1) / static_cast<double>(warmup)) : 1.0;
  const double left = static_cast<double>(std::max<int64_t>(total - update, 0));
  switch (scheduler) {
    case LrScheduler::kConstant:
      return rise;
    case LrScheduler::kLinear:
      return rise * std::min(1.0, left / (0.6 * static_cast<double>(std::max<int64_t>(total, 1))));
    case LrScheduler::kWsd:
      return rise * std::min(1.0, left / (0.2 * static_cast<double>(std::max<int64_t>(total, 1))));
    case LrScheduler::kCosine:
      break;
  }
  if (update < warmup) return rise;
  const double span = static_cast<double>(std::max<int64_t>(total - warmup, 1));
  const double done = std::min(1.0, static_cast<double>(update - warmup) / span);
  return 0.5 * (1 + std::cos(std::numbers::pi * done));
}

namespace {

/// One group a parameter, since each has a learning rate of its own.
std::vector<torch::optim::OptimizerParamGroup> groups_of(const std::vector<AdamParameter>& parameters, double beta1,
                                                         double beta2) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const AdamParameter& parameter : parameters) {
    require(parameter.tensor.is_leaf() && parameter.tensor.requires_grad(),
            "Adam: {} is not a leaf that takes gradients", parameter.name);
    groups.emplace_back(std::vector<at::Tensor>{parameter.tensor},
                        std::make_unique<torch::optim::AdamOptions>(torch::optim::AdamOptions().betas({beta1, beta2})));
  }
  return groups;
}

}  // namespace

struct Adam::Impl {
  std::vector<AdamParameter> parameters;
  std::vector<at::Tensor> tensors;
  torch::optim::Adam optimizer;

  Impl(std::vector<AdamParameter> parameters_, double beta1, double beta2)
      : parameters(std::move(parameters_)), optimizer(groups_of(parameters, beta1, beta2)) {
    for (const AdamParameter& parameter : parameters) tensors.push_back(parameter.tensor);
  }
};

Adam::Adam(std::vector<AdamParameter> parameters, double beta1, double beta2)
    : impl_(std::make_unique<Impl>(std::move(parameters), beta1, beta2)) {}

Adam::~Adam() = default;
Adam::Adam(Adam&&) noexcept = default;
Adam& Adam::operator=(Adam&&) noexcept = default;

double Adam::step(double learning_rate, double max_grad_norm) {
  const double norm = torch::nn::utils::clip_grad_norm_(impl_->tensors, max_grad_norm);
  for (size_t i = 0; i < impl_->parameters.size(); ++i) {
    static_cast<torch::optim::AdamOptions&>(impl_->optimizer.param_groups()[i].options())
        .lr(learning_rate * impl_->parameters[i].rate);
  }
  impl_->optimizer.step();
  impl_->optimizer.zero_grad();
  return norm;
}

std::vector<std::pair<std::string, at::Tensor>> Adam::state() const {
  std::vector<std::pair<std::string, at::Tensor>> saved;
  auto& states = impl_->optimizer.state();
  for (const AdamParameter& parameter : impl_->parameters) {
    const auto found = states.find(parameter.tensor.unsafeGetTensorImpl());
    if (found == states.end()) continue;
    const auto& moments = static_cast<const torch::optim::AdamParamState&>(*found->second);
    saved.emplace_back(parameter.name + ".exp_avg", moments.exp_avg());
    saved.emplace_back(parameter.name + ".exp_avg_sq", moments.exp_avg_sq());
    saved.emplace_back(parameter.name + ".step", at::scalar_tensor(moments.step(), at::TensorOptions(at::kLong)));
  }
  return saved;
}

void Adam::load_state(const std::vector<std::pair<std::string, at::Tensor>>& state) {
  auto& states = impl_->optimizer.state();
  states.clear();
  if (state.empty()) return;
  const std::map<std::string, at::Tensor> by_name(state.begin(), state.end());
  const auto take = [&](const std::string& name, at::IntArrayRef shape) {
    const auto found = by_name.find(name);
    require(found != by_name.end(), "optimizer state: {} is missing", name);
    require(found->second.sizes() == shape, "optimizer state: {} has shape {}, expected {}", name,
            fmt::join(found->second.sizes(), "x"), fmt::join(shape, "x"));
    return found->second.clone();
  };
  for (const AdamParameter& parameter : impl_->parameters) {
    auto moments = std::make_unique<torch::optim::AdamParamState>();
    moments->exp_avg(take(parameter.name + ".exp_avg", parameter.tensor.sizes()));
    moments->exp_avg_sq(take(parameter.name + ".exp_avg_sq", parameter.tensor.sizes()));
    moments->step(take(parameter.name + ".step", {}).item<int64_t>());
    states[parameter.tensor.unsafeGetTensorImpl()] = std::move(moments);
  }
}

}  // namespace focus
