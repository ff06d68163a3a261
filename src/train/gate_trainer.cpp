#include "train/gate_trainer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "attention/routing/formulas.h"
#include "attention/routing/sinkhorn.h"
#include "base/error.h"
#include "train/lm_loss.h"
#include "train/random_stream.h"
#include "train/recording_attention.h"
#include "train/window_pass.h"

namespace focus {

namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.98;
// Spread of the first scores divided by tau: memberships lean to some groups and can still move.
constexpr double kFirstSpread = 2.0;
constexpr int64_t kCountedRows = 64;

constexpr int64_t kReclusterRounds = 10;
const std::vector<std::string> kTensors = {"projection", "centroids", "potentials"};

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

NamedTensors part_of(const NamedTensors& state, const std::string& prefix) {
  NamedTensors found;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), tensor);
  }
  return found;
}

/// The k best memberships as a hard mask.
struct HardMask {
  int64_t kept = 0;    ///< Pairs kept at evenly spread query rows, over the list sets.
  int64_t causal = 0;  ///< Causal pairs there.
  double dominance = 0;
};

HardMask harden(const at::Tensor& memberships, const TrainWindows::Window& window, const RoutingConfig& routing) {
  const int64_t tokens = memberships.size(1), k = routing.groups_per_token;
  const at::Tensor best = std::get<1>(memberships.topk(k, -1));                   // [Hg, T, k]
  const at::Tensor member = at::zeros_like(memberships).scatter_(-1, best, 1.0);  // [Hg, T, K]
  const at::Tensor rows = at::linspace(0, static_cast<double>(tokens - 1), std::min(kCountedRows, tokens), at::kDouble)
                              .round()
                              .to(at::kLong);
  const at::Tensor start = at::tensor(window.document_start, at::kLong).index_select(0, rows).unsqueeze(1);
  const at::Tensor i = rows.unsqueeze(1), j = at::arange(tokens, at::kLong);
  const at::Tensor causal = (j <= i).logical_and(j >= start);  // [R, T]
  const at::Tensor near = (i - j <= routing.window).logical_or(j < start + routing.sinks);
  const at::Tensor shared = at::matmul(member.index_select(1, rows), member.transpose(-1, -2)) > 0.5;  // [Hg, R, T]
  HardMask result;
  result.kept = shared.logical_or(near).logical_and(causal).sum().item<int64_t>();
  result.causal = causal.sum().item<int64_t>() * memberships.size(0);
  result.dominance = (member.mean(1) / static_cast<double>(k)).max().item<double>();
  return result;
}

}  // namespace

GateTrainer::GateTrainer(const CausalLM& model, const GateTrainingOptions& options,
                         std::function<TrainWindows::Window()> next_window)
    : model_(model),
      options_(options),
      next_window_(std::move(next_window)),
      attention_(options.routing, options.sharpness, routers_, options.balance) {
  require(options_.steps >= 1, "at least one training step is needed, got {}", options_.steps);
  const ModelConfig& config = model.config();
  if (options_.weights_learning_rate) {
    for (const auto& [name, tensor] : model.parameters()) {
      require(tensor.scalar_type() == at::kFloat, "{} is not float32: weights are trained in float32", name);
      weights_.emplace_back(name, tensor);
      weights_.back().second.set_requires_grad(true);
    }
  }
  if (!options_.eval_windows.empty()) {
    study_.emplace(model, options_.routing, options_.sharpness, options_.balance, options_.eval_windows);
  }
  const int64_t sets = options_.routing.shared ? 1 : config.num_kv_heads, dim = options_.routing.group_dim;
  for (const int64_t layer : trained_layers(options_.layers, config.num_layers)) {
    if (!options_.start.empty()) {
      const auto found = options_.start.find(layer);
      require(found != options_.start.end(), "the routers to start from have no layer {}", layer);
      for (const std::string& name : kTensors) {
        routers_[layer].tensor(name) = found->second.tensor(name).detach().clone();
      }
      continue;
    }
    at::Generator generator =
        at::make_generator<at::CPUGeneratorImpl>(RandomStream({options_.seed, layer, kInitStream}).next());
    LayerRouter& router = routers_[layer];
    router.projection = at::randn({sets, dim, config.hidden_size}, generator);
    router.centroids = at::randn({sets, options_.routing.groups, dim}, generator) / std::sqrt(static_cast<double>(dim));
    router.potentials = at::zeros({sets, options_.routing.groups});
  }
}

GateTrainer::~GateTrainer() {
  for (auto& [name, tensor] : weights_) {
    tensor.mutable_grad().reset();
    tensor.set_requires_grad(false);
  }
}

void GateTrainer::initialise(const TrainWindows::Window& window) {
  const at::NoGradGuard no_grad;
  RecordingAttention recording([&](const AttentionInput& input) {
    const auto found = routers_.find(input.layer);
    if (found == routers_.end()) return;
    LayerRouter& router = found->second;
    const at::Tensor hidden = input.hidden[0].to(at::kCPU, at::kFloat);                    // [T, d]
    const at::Tensor projected = at::matmul(hidden, router.projection.transpose(-1, -2));  // [Hg, T, d_g]
    // What all tokens share moves no token from one group to another.
    const at::Tensor spread = (projected - projected.mean(1, /*keepdim=*/true)).square().mean({1, 2}).sqrt();
    router.projection =
        router.projection * (kFirstSpread * options_.routing.tau / spread.clamp_min(1e-6)).view({-1, 1, 1});
    if (options_.balance.normaliser == GroupNormaliser::kPotentials) {
      const at::Tensor scores =
          symmetric_scores(hidden, router.projection, router.centroids, options_.routing.tau);  // [Hg, T, K]
      router.potentials = sinkhorn_potentials(scores, options_.routing.sinkhorn_iters);
    }
  });
  model_.forward(ids_of(window), recording, forward_options(window));
}

void GateTrainer::make_optimizer() {
  std::vector<AdamParameter> parameters;
  for (auto& [layer, router] : routers_) {
    for (const std::string& name : options_.balance.trained()) {
      at::Tensor& tensor = router.tensor(name);
      tensor = tensor.detach().clone().set_requires_grad(true);
      parameters.push_back({fmt::format("layers.{}.{}", layer, name), tensor});
    }
  }
  for (const auto& [name, tensor] : weights_) {
    parameters.push_back({"weights." + name, tensor, *options_.weights_learning_rate / options_.learning_rate});
  }
  adam_.reset();
  if (!parameters.empty()) adam_ = std::make_unique<Adam>(std::move(parameters), kBeta1, kBeta2);
}

void GateTrainer::move_by_tokens() {
  const at::NoGradGuard no_grad;
  const GroupBalance& balance = options_.balance;
  const bool follows = balance.mitigation == GroupMitigation::kEmaCentroids;
  const bool anew = balance.mitigation == GroupMitigation::kRecluster && step_ % balance.recluster_every == 0;
  for (auto& [layer, router] : routers_) {
    const at::Tensor hidden = attention_.hidden().at(layer)[0].to(at::kCPU, at::kFloat);  // [T, d]
    if (follows || anew) {
      const at::Tensor features = at::matmul(hidden, router.projection.transpose(-1, -2));      // [Hg, T, d_g]
      const at::Tensor groups = attention_.memberships().at(layer)[0].to(at::kCPU).argmax(-1);  // [Hg, T]
      router.centroids.copy_(follows ? ema_centroids(router.centroids, features, groups, balance.ema_decay)
                                     : recluster(features, router.centroids, kReclusterRounds,
                                                 RandomStream({options_.seed, layer, kReclusterStream, step_}).next()));
    }
    if (balance.normaliser == GroupNormaliser::kPotentials) {
      // Of groups that were made anew nothing earlier tells anything.
      const at::Tensor scores =
          anew ? symmetric_scores(hidden, router.projection, router.centroids, options_.routing.tau)
               : attention_.scores().at(layer)[0].to(at::kCPU);
      const at::Tensor now = sinkhorn_potentials(scores, options_.routing.sinkhorn_iters);
      const double kept = anew ? 0 : balance.ema_decay;
      router.potentials = kept * router.potentials + (1 - kept) * now;
    }
  }
}

at::Tensor GateTrainer::forward(const TrainWindows::Window& window) {
  return model_.forward(ids_of(window), attention_, forward_options(window)).squeeze(0);
}

StepResult GateTrainer::train_step(const std::function<void(const std::string&)>& /*note*/) {
  require(!done(), "training is done: {} of {} steps", step_, options_.steps);
  const RoutingConfig& routing = options_.routing;
  const TrainWindows::Window window = next_window_();
  require(std::ssize(window.ids) > routing.window + routing.sinks + 1,
          "training windows of {} tokens hold no far pairs: with --window {} and --sinks {} the context must exceed {}",
          window.ids.size(), routing.window, routing.sinks, routing.window + routing.sinks + 1);
  if (step_ == 0 && options_.start.empty()) initialise(window);
  if (step_ == 0 && study_ && !study_->started()) study_->start(routers_);
  if (!prepared_) make_optimizer();
  prepared_ = true;
  const at::AutoGradMode with_grad(true);
  const at::Tensor hidden = forward(window);
  const LmLoss loss = lm_loss(model_, hidden, next_tokens(window));
  require(std::isfinite(loss.nats), "the loss is not finite; a lower --learning-rate may help");
  StepResult result;
  std::vector<at::Tensor> outputs = {hidden}, gradients = {loss.hidden_gradient};
  const at::Tensor auxiliary = attention_.auxiliary_loss();
  if (auxiliary.defined()) {
    result.auxiliary_loss = auxiliary.item<double>();
    outputs.push_back(auxiliary);
    gradients.push_back(at::full_like(auxiliary.detach(), options_.balance.auxiliary_weight));
  }
  // Without anything that the gradient moves no output has one.
  if (adam_) torch::autograd::backward(outputs, gradients);

  result.learning_rate =
      options_.learning_rate * lr_factor(options_.scheduler, step_, options_.steps, options_.warmup_steps);
  if (adam_) result.grad_norm = adam_->step(result.learning_rate, options_.max_grad_norm);
  require(std::isfinite(result.grad_norm), "the gradient is not finite; a lower --learning-rate may help");
  result.step = ++step_;
  result.stage = weights_.empty() ? "lm-gate" : "all";
  result.loss = loss.nats;
  move_by_tokens();
  const at::NoGradGuard no_grad;
  int64_t kept = 0, causal = 0;
  for (const auto& [layer, memberships] : attention_.memberships()) {
    const HardMask mask = harden(memberships[0].to(at::kCPU), window, routing);
    kept += mask.kept;
    causal += mask.causal;
    result.dominance = std::max(result.dominance, mask.dominance);
  }
  result.pairs_kept = static_cast<double>(kept) / static_cast<double>(causal);
  return result;
}

std::vector<double> GateTrainer::calibrate() {
  const at::NoGradGuard no_grad;
  std::map<int64_t, std::vector<at::Tensor>> collected;  // [Hg, T, K]
  for (int64_t i = 0; i < options_.calibration_windows; ++i) {
    forward(next_window_());
    for (const auto& [layer, scores] : attention_.scores()) collected[layer].push_back(scores[0].to(at::kCPU));
  }
  std::vector<double> shares;
  for (auto& [layer, router] : routers_) {
    const at::Tensor scores = at::cat(collected.at(layer), 1);
    if (options_.balance.normaliser == GroupNormaliser::kSoftmax) {
      shares.push_back(at::one_hot(scores.argmax(-1), scores.size(2)).to(at::kDouble).mean(1).max().item<double>());
      continue;
    }
    const Calibration calibrated =
        calibrate_potentials(scores, sinkhorn_potentials(scores, options_.routing.sinkhorn_iters));
    router.potentials = calibrated.potentials;
    shares.push_back(calibrated.largest_share.max().item<double>());
  }
  return shares;
}

std::map<int64_t, LayerRouter> GateTrainer::routers() const {
  std::map<int64_t, LayerRouter> copies;
  for (const auto& [layer, router] : routers_) {
    LayerRouter& copy = copies[layer];
    for (const std::string& name : kTensors) {
      copy.tensor(name) = router.tensor(name).detach().clone();
    }
  }
  return copies;
}

double GateTrainer::evaluate() {
  require(study_ && study_->started(), "groups are measured on windows of their own, after a first step");
  figures_ = study_->measure(routers_);
  if (done()) paths_ = study_->paths(routers_);
  return figures_->nats;
}

NamedTensors GateTrainer::state() const {
  NamedTensors saved;
  for (const auto& [layer, router] : routers_) {
    for (const std::string& name : kTensors) {
      saved.emplace_back(fmt::format("layers.{}.{}", layer, name), router.tensor(name).detach());
    }
  }
  for (const auto& [name, tensor] : weights_) saved.emplace_back("weights." + name, tensor.detach());
  if (adam_) {
    for (const auto& [name, tensor] : adam_->state()) saved.emplace_back("adam." + name, tensor);
  }
  if (study_) {
    for (const auto& [name, tensor] : study_->state()) saved.emplace_back("study." + name, tensor);
  }
  return saved;
}

void GateTrainer::load_state(int64_t step, const NamedTensors& state) {
  require(step >= 0 && step <= options_.steps, "checkpoint at step {}, but the run has {} steps", step, options_.steps);
  const std::map<std::string, at::Tensor> by_name(state.begin(), state.end());
  const auto saved = [&](const std::string& key, const at::Tensor& like) {
    const auto found = by_name.find(key);
    require(found != by_name.end(), "the checkpoint has no {}", key);
    require(found->second.sizes() == like.sizes(), "the checkpoint's {} has shape {}, expected {}", key,
            fmt::join(found->second.sizes(), "x"), fmt::join(like.sizes(), "x"));
    return found->second;
  };
  // Before the weights: what the study holds of the start is measured anew, with the weights of the start.
  if (study_) study_->load_state(part_of(state, "study."));
  for (auto& [layer, router] : routers_) {
    for (const std::string& name : kTensors) {
      at::Tensor& tensor = router.tensor(name);
      tensor = saved(fmt::format("layers.{}.{}", layer, name), tensor).clone();
    }
  }
  {
    const at::NoGradGuard no_grad;
    for (auto& [name, tensor] : weights_) tensor.copy_(saved("weights." + name, tensor));
  }
  make_optimizer();
  prepared_ = step > 0;
  if (adam_) adam_->load_state(part_of(state, "adam."));
  step_ = step;
}

}  // namespace focus
