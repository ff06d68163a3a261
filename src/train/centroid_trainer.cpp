#include "train/centroid_trainer.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "base/error.h"
#include "train/recording_attention.h"
#include "train/repeats.h"

namespace focus {

namespace {

// Windows that the second moments of the hidden states are estimated from, more than enough tokens for their
// dimensions.
constexpr int64_t kStartWindows = 3;
// Share of the windows with a repeat among those that probes are shared out by: looking up and reading on count alike.
constexpr double kBudgetRepeats = 0.5;

DistillationLayer copy_for_training(const AttentionInput& input, const at::Tensor& document_start) {
  // Detached: the weights may be in training themselves.
  const auto plain = [](const at::Tensor& t) { return t.detach().to(at::kCPU, at::kFloat).contiguous(); };
  // A norm of queries and keys scales their dimensions; what it divides by differs from token to token and is left out.
  const auto with_gain = [&](const at::Tensor& weight, const at::Tensor& gain) {
    return gain.defined() ? plain(weight) * plain(gain).unsqueeze(1) : plain(weight);
  };
  return {.hidden = plain(input.hidden[0]),
          .q = plain(input.q[0]),
          .k = plain(input.k[0]),
          .v = plain(input.v[0]),
          .query_weight = with_gain(input.query_weight, input.query_gain),
          .key_weight = with_gain(input.key_weight, input.key_gain),
          .output_weight = plain(input.output_weight),
          .document_start = document_start,
          .scale = input.scale,
          .softcap = input.softcap,
          .layer_window = input.layer_window};
}

/// Runs work(i) for i in [0, n) on the threads at hand, each call on one thread: results do not depend on their number,
/// nor does the error, which is that of the lowest i.
void parallel_over_layers(int64_t n, const std::function<void(int64_t)>& work) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(n));
  at::parallel_for(0, n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      try {
        work(i);
      } catch (...) {
        errors[static_cast<size_t>(i)] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

int64_t CentroidTrainingOptions::list_steps() const {
  return std::clamp<int64_t>(std::llround(lists_share * static_cast<double>(steps)), 0, steps - 1);
}

CentroidTrainer::CentroidTrainer(const CausalLM& model, const CentroidTrainingOptions& options,
                                 std::function<TrainWindows::Window()> next_window)
    : model_(model), options_(options), next_window_(std::move(next_window)) {
  options_.distillation.routing.validate();
  require(options_.steps >= 1, "at least one training step is needed, got {}", options_.steps);
  options_.layers = trained_layers(options_.layers, model.config().num_layers);
  for (const int64_t layer : options_.layers) layers_.emplace_back(layer, options_.distillation);
}

void CentroidTrainer::for_each_layer(const TrainWindows::Window& window,
                                     const std::function<void(int64_t, const DistillationLayer&)>& work) {
  const at::NoGradGuard no_grad;
  // A few layers wait for their turn together, so that all threads have work and memory stays bounded.
  const int64_t together = 4 * static_cast<int64_t>(at::get_num_threads());
  std::vector<std::pair<int64_t, DistillationLayer>> waiting;
  ForwardOptions forward;
  at::Tensor document_start;  // Undefined while the window is one document.
  if (window.document_start.back() != 0) {
    forward.document_start = at::tensor(window.document_start, at::kInt).unsqueeze(0);
    document_start = forward.document_start->squeeze(0).to(at::kLong);
  }
  const auto flush = [&] {
    parallel_over_layers(std::ssize(waiting), [&](int64_t i) { work(waiting[i].first, waiting[i].second); });
    waiting.clear();
  };
  RecordingAttention method([&](const AttentionInput& input) {
    const auto found = std::lower_bound(options_.layers.begin(), options_.layers.end(), input.layer);
    if (found == options_.layers.end() || *found != input.layer) return;
    waiting.emplace_back(found - options_.layers.begin(), copy_for_training(input, document_start));
    if (std::ssize(waiting) == together) flush();
  });
  const at::Tensor input = at::tensor(window.ids, at::kLong).unsqueeze(0);
  const at::Tensor positions = model_.positions(input, forward);
  at::Tensor x = model_.embed(input, positions);
  // What comes after the last trained layer shows nothing.
  for (int64_t layer = 0; layer <= options_.layers.back(); ++layer) {
    x = model_.block(layer, x, positions, method, forward);
  }
  flush();
}

TrainWindows::Window CentroidTrainer::window(int64_t index, double repeats) {
  TrainWindows::Window window = next_window_();
  // Across a border between documents a repeat could not be found.
  const bool one_document = window.document_start.back() == 0;
  if (one_document && takes_repeat(index, repeats)) {
    repeat_passage(window.ids, options_.distillation.seed, index);
  }
  return window;
}

void CentroidTrainer::initialise() {
  for (int64_t i = 0; i < kStartWindows; ++i) {
    for_each_layer(next_window_(), [&](int64_t layer, const DistillationLayer& seen) { layers_[layer].observe(seen); });
  }
  parallel_over_layers(std::ssize(layers_), [&](int64_t layer) { layers_[layer].initialise(); });
}

void CentroidTrainer::build_lists(const std::function<void(const std::string&)>& note) {
  if (note) note(fmt::format("building lists from the keys of {} windows", options_.list_windows));
  for (int64_t i = 0; i < options_.list_windows; ++i) {
    for_each_layer(window(options_.steps + i),
                   [&](int64_t layer, const DistillationLayer& seen) { layers_[layer].collect(seen.hidden); });
  }
  parallel_over_layers(std::ssize(layers_), [&](int64_t layer) { layers_[layer].build_lists(); });
}

StepResult CentroidTrainer::train_step(const std::function<void(const std::string&)>& note) {
  require(!done(), "training is done: {} of {} steps", step_, options_.steps);
  if (!layers_.front().initialised()) initialise();
  const bool lists = step_ >= options_.index_steps();
  if (lists && !layers_.front().has_lists()) build_lists(note);
  const int64_t per_step = options_.updates_per_step;
  const int64_t first = (lists ? step_ - options_.index_steps() : step_) * per_step;
  const int64_t total = (lists ? options_.list_steps() : options_.index_steps()) * per_step;

  std::vector<UpdateResult> last(layers_.size());
  std::vector<double> loss(layers_.size(), 0.0);
  for_each_layer(window(step_), [&](int64_t layer, const DistillationLayer& seen) {
    for (int64_t i = 0; i < per_step; ++i) {
      last[layer] = lists ? layers_[layer].update_lists(seen, first + i, total)
                          : layers_[layer].update_index(seen, first + i, total);
      loss[layer] += last[layer].loss / static_cast<double>(per_step);
    }
  });
  ++step_;
  StepResult result;
  result.step = step_;
  result.stage = lists ? "lists" : "output";
  const DistillationOptions& distillation = options_.distillation;
  result.learning_rate = distillation.learning_rate *
                         lr_factor(distillation.scheduler, first + per_step - 1, total, distillation.warmup_updates);
  const double n = static_cast<double>(layers_.size());
  int64_t kept = 0, causal = 0;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    result.loss += loss[layer] / n;
    result.grad_norm += last[layer].grad_norm / n;
    result.dominance = std::max(result.dominance, last[layer].dominance);
    kept += last[layer].kept;
    causal += last[layer].causal;
  }
  result.layer_loss = std::move(loss);
  result.pairs_kept = static_cast<double>(kept) / static_cast<double>(causal);
  return result;
}

std::vector<double> CentroidTrainer::calibrate() {
  if (!layers_.front().has_lists()) build_lists({});
  std::vector<double> shares(layers_.size());
  parallel_over_layers(std::ssize(layers_), [&](int64_t layer) { shares[layer] = layers_[layer].calibrate(); });
  if (options_.probes_by_head) allocate_probes();
  return shares;
}

void CentroidTrainer::allocate_probes() {
  const RoutingConfig& routing = options_.distillation.routing;
  const std::vector<int64_t> grid = probe_grid(routing.groups_per_token, routing.groups);
  const int64_t first = options_.steps + options_.list_windows;
  for (int64_t i = 0; i < options_.budget_windows; ++i) {
    for_each_layer(window(first + i, kBudgetRepeats),
                   [&](int64_t layer, const DistillationLayer& seen) { layers_[layer].measure_probes(seen, i, grid); });
  }
  std::vector<ProbeCurves> curves;
  for (const LayerTrainer& layer : layers_) curves.push_back(layer.probe_curves());
  const auto probes = focus::allocate_probes(curves, grid, routing.groups_per_token);
  for (size_t layer = 0; layer < layers_.size(); ++layer) layers_[layer].set_probes(probes[layer]);
}

std::map<int64_t, LayerRouter> CentroidTrainer::routers() const {
  std::map<int64_t, LayerRouter> routers;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    routers.emplace(options_.layers[layer], layers_[layer].router());
  }
  return routers;
}

std::vector<std::pair<std::string, at::Tensor>> CentroidTrainer::state() const {
  std::vector<std::pair<std::string, at::Tensor>> saved;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    for (const auto& [name, tensor] : layers_[layer].state()) {
      saved.emplace_back(fmt::format("layers.{}.{}", options_.layers[layer], name), tensor);
    }
  }
  return saved;
}

void CentroidTrainer::load_state(int64_t step, const std::vector<std::pair<std::string, at::Tensor>>& state) {
  require(step >= 0 && step <= options_.steps, "checkpoint at step {}, but the run has {} steps", step, options_.steps);
  step_ = step;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const std::string prefix = fmt::format("layers.{}.", options_.layers[layer]);
    std::vector<std::pair<std::string, at::Tensor>> own;
    for (const auto& [name, tensor] : state) {
      if (name.starts_with(prefix)) own.emplace_back(name.substr(prefix.size()), tensor);
    }
    require(!own.empty(), "the checkpoint has no tensors of layer {}", options_.layers[layer]);
    layers_[layer].load_state(own);
  }
}

}  // namespace focus
