#include "train/ste_trainer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "attention/methods/full.h"
#include "attention/routing/formulas.h"
#include "attention/routing/sinkhorn.h"
#include "base/error.h"
#include "train/lm_loss.h"
#include "train/repeats.h"
#include "train/window_pass.h"

namespace focus {

namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.98;
// Scalars around 1 move farther than entries of a codebook.
constexpr double kScaleRate = 5.0;
// Step of the potentials against the log of the lists' shares in one window, which are noisy.
constexpr double kBalanceRate = 0.02;

double share_of(const PairCount& pairs) {
  return pairs.causal > 0 ? static_cast<double>(pairs.kept) / static_cast<double>(pairs.causal) : 1.0;
}

at::Tensor leaf(const at::Tensor& x, bool trained) {
  return x.detach().clone().set_requires_grad(trained);
}

}  // namespace

SteTrainer::SteTrainer(const CausalLM& model, std::shared_ptr<const Router> router,
                       const std::shared_ptr<const HeadScales>& scales, const SteTrainingOptions& options,
                       std::function<TrainWindows::Window()> next_window)
    : model_(model), options_(options), next_window_(std::move(next_window)), start_(std::move(router)) {
  require(options_.steps >= 1, "at least one training step is needed, got {}", options_.steps);
  options_.lists = options_.lists && start_ != nullptr;
  require(options_.lists || options_.scales, "nothing to train: neither lists nor head scales");
  require(!options_.lists || !start_->config().symmetric,
          "straight-through training is for lists and probes, not for the symmetric form");
  if (scales != nullptr || options_.scales) {
    scales_ = std::make_shared<HeadScales>();
    for (int64_t layer = 0; layer < model.config().num_layers; ++layer) {
      const HeadScale* given = find_scale(scales, layer);
      if (given == nullptr && !options_.scales) continue;
      const HeadScale first = given != nullptr ? *given : HeadScale::ones(model.config().num_heads);
      (*scales_)[layer] = {.score_factor = leaf(first.score_factor, options_.scales),
                           .output_gain = leaf(first.output_gain, options_.scales)};
    }
  }
  if (start_ == nullptr) {
    method_ = std::make_unique<FullAttention>(scales_);
  } else {
    layers_ = start_->layers();
    std::map<int64_t, at::Tensor> codebooks;
    for (auto& [layer, weights] : layers_) {
      if (!options_.lists) continue;
      weights.codebook = leaf(weights.codebook, true);
      codebooks[layer] = weights.codebook;
    }
    auto lists = std::make_unique<StraightThroughAttention>(start_, scales_, codebooks, options_.sharpness);
    lists_ = lists.get();
    method_ = std::move(lists);
  }
  std::vector<AdamParameter> trained;
  for (const auto& [name, tensor] : parameters()) {
    if (tensor.requires_grad()) trained.push_back({name, tensor, name.ends_with("codebook") ? 1.0 : kScaleRate});
  }
  adam_ = std::make_unique<Adam>(std::move(trained), kBeta1, kBeta2);
}

SteTrainer::NamedTensors SteTrainer::parameters() const {
  NamedTensors named;
  for (const auto& [layer, weights] : layers_) {
    if (!options_.lists) break;
    named.emplace_back(fmt::format("layers.{}.codebook", layer), weights.codebook);
    named.emplace_back(fmt::format("layers.{}.potentials", layer), weights.potentials);
  }
  if (!options_.scales) return named;
  for (const auto& [layer, scale] : *scales_) {
    named.emplace_back(fmt::format("layers.{}.score_factor", layer), scale.score_factor);
    named.emplace_back(fmt::format("layers.{}.output_gain", layer), scale.output_gain);
  }
  return named;
}

void SteTrainer::restore(const NamedTensors& saved) {
  const at::NoGradGuard no_grad;
  const std::map<std::string, at::Tensor> by_name(saved.begin(), saved.end());
  for (const auto& [name, tensor] : parameters()) {
    const auto found = by_name.find(name);
    require(found != by_name.end(), "the checkpoint has no {}", name);
    require(found->second.sizes() == tensor.sizes(), "the checkpoint's {} has shape [{}], expected [{}]", name,
            fmt::join(found->second.sizes(), ", "), fmt::join(tensor.sizes(), ", "));
    if (name.ends_with("potentials")) continue;
    // In place: the optimizer and the attention hold the same tensors.
    at::Tensor(tensor).copy_(found->second);
  }
  for (auto& [layer, weights] : layers_) {
    if (options_.lists) weights.potentials = by_name.at(fmt::format("layers.{}.potentials", layer)).clone();
  }
  update_router();
}

void SteTrainer::update_router() {
  if (lists_ != nullptr && options_.lists) lists_->update(std::make_shared<const Router>(start_->config(), routers()));
}

void SteTrainer::keep_best() {
  best_.clear();
  for (const auto& [name, tensor] : parameters()) best_.emplace_back(name, tensor.detach().clone());
}

TrainWindows::Window SteTrainer::window() {
  TrainWindows::Window window = next_window_();
  // Across a border between documents a repeat could not be found.
  if (window.document_start.back() == 0 && takes_repeat(step_, options_.repeats)) {
    repeat_passage(window.ids, options_.seed, step_);
  }
  return window;
}

at::Tensor SteTrainer::forward(const TrainWindows::Window& window) {
  return model_.forward(ids_of(window), *method_, forward_options(window)).squeeze(0);
}

StepResult SteTrainer::train_step(const std::function<void(const std::string&)>& /*note*/) {
  require(!done(), "training is done: {} of {} steps", step_, options_.steps);
  const TrainWindows::Window window = this->window();
  method_->reset_pairs();
  if (lists_ != nullptr) lists_->reset_dominance();
  const at::AutoGradMode with_grad(true);
  const at::Tensor hidden = forward(window);
  const LmLoss loss = lm_loss(model_, hidden, next_tokens(window));
  require(std::isfinite(loss.nats), "the loss is not finite; a lower --learning-rate may help");
  torch::autograd::backward({hidden}, {loss.hidden_gradient});

  StepResult result;
  result.learning_rate =
      options_.learning_rate * lr_factor(options_.scheduler, step_, options_.steps, options_.warmup_steps);
  result.grad_norm = adam_->step(result.learning_rate, options_.max_grad_norm);
  require(std::isfinite(result.grad_norm), "the gradient is not finite; a lower --learning-rate may help");
  result.step = ++step_;
  result.stage = "lm-ste";
  result.loss = loss.nats;
  result.pairs_kept = share_of(method_->pairs());
  if (lists_ == nullptr) return result;
  result.dominance = lists_->dominance().largest();
  if (options_.lists) follow_balance();
  return result;
}

void SteTrainer::follow_balance() {
  const at::NoGradGuard no_grad;
  const auto entries = static_cast<double>(start_->config().entries());
  for (auto& [layer, weights] : layers_) {
    const at::Tensor excess = (lists_->entry_shares(layer) * entries + 0.1).log().clamp(-1, 1);
    weights.potentials = weights.potentials - kBalanceRate * (excess - excess.mean(-1, /*keepdim=*/true));
  }
  update_router();
}

double SteTrainer::measure(const std::vector<TrainWindows::Window>& windows) {
  method_->reset_pairs();
  for (const TrainWindows::Window& window : windows) forward(window);
  return share_of(method_->pairs());
}

std::vector<double> SteTrainer::calibrate() {
  const at::NoGradGuard no_grad;
  if (!best_.empty()) restore(best_);
  if (lists_ == nullptr) return {};
  std::vector<TrainWindows::Window> windows;
  for (int64_t i = 0; i < options_.calibration_windows; ++i) windows.push_back(next_window_());
  if (options_.lists) {
    lists_->update(start_);
    calibration_.start = measure(windows);
    update_router();
    lists_->collect_features();
    calibration_.trained = measure(windows);
    for (const auto& [layer, features] : lists_->take_features()) {
      LayerRouter& weights = layers_.at(layer);
      const at::Tensor none = at::zeros_like(weights.potentials);
      const at::Tensor scores = key_list_scores(features, weights.codebook.detach(), none, start_->config().tau);
      weights.potentials = calibrate_potentials(scores, weights.potentials).potentials;
    }
    update_router();
  }
  lists_->reset_dominance();
  calibration_.calibrated = measure(windows);
  if (!options_.lists) calibration_.start = calibration_.trained = calibration_.calibrated;
  std::vector<double> largest;
  for (const auto& [layer, share] : lists_->dominance().largest_share) largest.push_back(share);
  return largest;
}

std::map<int64_t, LayerRouter> SteTrainer::routers() const {
  std::map<int64_t, LayerRouter> copies = layers_;
  for (auto& [layer, weights] : copies) {
    if (!options_.lists) break;
    weights.codebook = weights.codebook.detach().clone();
    weights.potentials = weights.potentials.clone();
  }
  return copies;
}

std::shared_ptr<const HeadScales> SteTrainer::scales() const {
  if (scales_ == nullptr) return nullptr;
  auto copies = std::make_shared<HeadScales>();
  for (const auto& [layer, scale] : *scales_) {
    (*copies)[layer] = {.score_factor = scale.score_factor.detach().clone(),
                        .output_gain = scale.output_gain.detach().clone()};
  }
  return copies;
}

SteTrainer::NamedTensors SteTrainer::state() const {
  NamedTensors saved;
  for (const auto& [name, tensor] : parameters()) saved.emplace_back(name, tensor.detach());
  for (const auto& [name, tensor] : best_) saved.emplace_back("best." + name, tensor);
  for (const auto& [name, tensor] : adam_->state()) saved.emplace_back("adam." + name, tensor);
  return saved;
}

void SteTrainer::load_state(int64_t step, const NamedTensors& state) {
  require(step >= 0 && step <= options_.steps, "checkpoint at step {}, but the run has {} steps", step, options_.steps);
  const auto part = [&](const std::string& prefix) {
    NamedTensors found;
    for (const auto& [name, tensor] : state) {
      if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), tensor.clone());
    }
    return found;
  };
  restore(state);
  best_ = part("best.");
  adam_->load_state(part("adam."));
  step_ = step;
}

}  // namespace focus
