#include "train/gate_trainer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "attention/routing/sinkhorn.h"
#include "base/error.h"
#include "train/lm_loss.h"
#include "train/random_stream.h"
#include "train/recording_attention.h"

namespace focus {

namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.98;
// Spread of the first scores divided by tau: memberships lean to some groups and can still move.
constexpr double kFirstSpread = 2.0;
constexpr int64_t kCountedRows = 64;

const std::vector<std::string> kTrained = {"projection", "centroids"};

at::Tensor ids_of(const TrainWindows::Window& window) {
  return at::tensor(window.ids, at::kLong).unsqueeze(0);
}

ForwardOptions forward_options(const TrainWindows::Window& window) {
  ForwardOptions options;
  if (window.document_start.back() != 0) {
    options.document_start = at::tensor(window.document_start, at::kInt).unsqueeze(0);
  }
  return options;
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
      attention_(options.routing, options.sharpness, routers_) {
  require(options_.steps >= 1, "at least one training step is needed, got {}", options_.steps);
  const ModelConfig& config = model.config();
  const int64_t sets = options_.routing.shared ? 1 : config.num_kv_heads, dim = options_.routing.group_dim;
  for (const int64_t layer : trained_layers(options_.layers, config.num_layers)) {
    at::Generator generator =
        at::make_generator<at::CPUGeneratorImpl>(RandomStream({options_.seed, layer, kInitStream}).next());
    LayerRouter& router = routers_[layer];
    router.projection = at::randn({sets, dim, config.hidden_size}, generator);
    router.centroids = at::randn({sets, options_.routing.groups, dim}, generator) / std::sqrt(static_cast<double>(dim));
    router.potentials = at::zeros({sets, options_.routing.groups});
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
  });
  model_.forward(ids_of(window), recording, forward_options(window));
}

void GateTrainer::make_optimizer() {
  std::vector<AdamParameter> parameters;
  for (auto& [layer, router] : routers_) {
    for (const std::string& name : kTrained) {
      at::Tensor& tensor = router.tensor(name);
      tensor = tensor.detach().clone().set_requires_grad(true);
      parameters.push_back({fmt::format("layers.{}.{}", layer, name), tensor});
    }
  }
  adam_ = std::make_unique<Adam>(std::move(parameters), kBeta1, kBeta2);
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
  if (step_ == 0) initialise(window);
  if (step_ == 0 || !adam_) make_optimizer();
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
  result.stage = "lm-gate";
  result.loss = loss.nats;
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
    for (const char* name : {"projection", "centroids", "potentials"}) {
      copy.tensor(name) = router.tensor(name).detach().clone();
    }
  }
  return copies;
}

std::vector<std::pair<std::string, at::Tensor>> GateTrainer::state() const {
  std::vector<std::pair<std::string, at::Tensor>> saved;
  for (const auto& [layer, router] : routers_) {
    for (const std::string& name : kTrained) {
      saved.emplace_back(fmt::format("layers.{}.{}", layer, name), router.tensor(name).detach());
    }
  }
  if (adam_) {
    for (const auto& [name, tensor] : adam_->state()) saved.emplace_back("adam." + name, tensor);
  }
  return saved;
}

void GateTrainer::load_state(int64_t step, const std::vector<std::pair<std::string, at::Tensor>>& state) {
  require(step >= 0 && step <= options_.steps, "checkpoint at step {}, but the run has {} steps", step, options_.steps);
  const std::map<std::string, at::Tensor> by_name(state.begin(), state.end());
  for (auto& [layer, router] : routers_) {
    for (const std::string& name : kTrained) {
      const std::string key = fmt::format("layers.{}.{}", layer, name);
      const auto found = by_name.find(key);
      require(found != by_name.end(), "the checkpoint has no {}", key);
      at::Tensor& tensor = router.tensor(name);
      require(found->second.sizes() == tensor.sizes(), "the checkpoint's {} has shape {}, expected {}", key,
              fmt::join(found->second.sizes(), "x"), fmt::join(tensor.sizes(), "x"));
      tensor = found->second.clone();
    }
  }
  make_optimizer();
  std::vector<std::pair<std::string, at::Tensor>> moments;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with("adam.")) moments.emplace_back(name.substr(5), tensor);
  }
  adam_->load_state(moments);
  step_ = step;
}

}  // namespace focus
