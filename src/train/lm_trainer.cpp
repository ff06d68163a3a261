#include "train/lm_trainer.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>

#include "attention/methods/list_attention.h"
#include "base/error.h"
#include "train/data_parallel.h"
#include "train/lm_loss.h"
#include "weights/dtype.h"

namespace focus {

namespace {

/// ATen's autocast on the CPU for as long as this lives.
class Autocast {
 public:
  explicit Autocast(std::optional<at::ScalarType> dtype)
      : was_enabled_(at::autocast::is_autocast_enabled(at::kCPU)), was_(at::autocast::get_autocast_dtype(at::kCPU)) {
    if (!dtype) return;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, *dtype);
  }
  ~Autocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
    at::autocast::set_autocast_dtype(at::kCPU, was_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool was_enabled_;
  at::ScalarType was_;
};

LmTrainer::NamedTensors with_gradients(LmTrainer::NamedTensors tensors) {
  for (auto& [name, tensor] : tensors) {
    require(tensor.scalar_type() == at::kFloat,
            "{} is {}: small updates would be lost in it, train in float32 (--dtype float32)", name,
            dtype_name(tensor.scalar_type()));
    tensor.set_requires_grad(true);
  }
  return tensors;
}

int64_t predicted(const at::Tensor& targets) {
  return targets.ge(0).sum().item<int64_t>();
}

}  // namespace

LmTrainer::LmTrainer(const CausalLM& model, AttentionSchedule& attention, NamedTensors trained,
                     const LmTrainingOptions& options, std::function<TrainWindows::Window()> next_window)
    : model_(model),
      attention_(attention),
      trained_(with_gradients(std::move(trained))),
      options_(options),
      next_window_(std::move(next_window)),
      optimizer_(trained_, options.optimizer),
      sum_(options.processes, trained_) {
  require(options_.steps >= 1 && options_.batch_size >= 1 && options_.accumulation >= 1,
          "training needs at least one step, one window a pass and one pass a step");
}

LmTrainer::~LmTrainer() {
  for (auto& [name, tensor] : trained_) {
    tensor.mutable_grad().reset();
    tensor.set_requires_grad(false);
  }
}

LmTrainer::Batch LmTrainer::next_batch() const {
  std::vector<at::Tensor> ids, targets, starts;
  bool packed = false;
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    const TrainWindows::Window window = next_window_();
    ids.push_back(at::tensor(window.ids, at::kLong));
    targets.push_back(next_tokens(window));
    starts.push_back(at::tensor(window.document_start, at::kInt));
    packed = packed || window.document_start.back() != 0;
  }
  Batch batch{.ids = at::stack(ids), .targets = at::stack(targets), .options = {}};
  if (packed) batch.options.document_start = at::stack(starts);
  return batch;
}

double LmTrainer::accumulate(AttentionMethod& method, const Batch& batch, int64_t count, bool last) {
  const at::Tensor hidden = model_.forward(batch.ids, method, batch.options);  // [B, T, d]
  const LmLoss loss = lm_loss(model_, hidden.flatten(0, 1), batch.targets.flatten(), count);
  if (last) sum_.start();
  torch::autograd::backward({hidden}, {loss.hidden_gradient.view(hidden.sizes())});
  return loss.nats;
}

double LmTrainer::accumulate_by_block(AttentionMethod& method, const Batch& batch, int64_t count, bool last) {
  const int64_t layers = model_.config().num_layers;
  const at::Tensor positions = model_.positions(batch.ids, batch.options);
  std::vector<at::Tensor> inputs;  // of each block and of the final norm, [B, T, d]
  {
    const at::NoGradGuard no_grad;
    inputs.push_back(model_.embed(batch.ids, positions));
    for (int64_t layer = 0; layer < layers; ++layer) {
      inputs.push_back(model_.block(layer, inputs.back(), positions, method, batch.options));
    }
  }
  // Autocast's copies of weights, made without gradients, must not serve the passes with them.
  at::autocast::clear_cache();
  // Runs a part again with gradients; returns that of its input.
  const auto backward_through = [](const at::Tensor& input, const auto& part, const auto& gradient_of) {
    const at::Tensor x = input.detach().set_requires_grad(true);
    const at::Tensor y = part(x);
    torch::autograd::backward({y}, {gradient_of(y)});
    return x.grad();
  };
  double nats = 0;
  at::Tensor gradient = backward_through(
      inputs.back(), [&](const at::Tensor& x) { return model_.final_norm(x); },
      [&](const at::Tensor& hidden) {
        const LmLoss loss = lm_loss(model_, hidden.flatten(0, 1), batch.targets.flatten(), count);
        nats = loss.nats;
        if (last) sum_.start();
        return loss.hidden_gradient.view(hidden.sizes());
      });
  inputs.pop_back();
  for (int64_t layer = layers - 1; layer >= 0; --layer) {
    gradient = backward_through(
        inputs.back(), [&](const at::Tensor& x) { return model_.block(layer, x, positions, method, batch.options); },
        [&](const at::Tensor& y) { return gradient.to(y.scalar_type()); });
    inputs.pop_back();
  }
  const at::Tensor embedded = model_.embed(batch.ids, positions);
  if (embedded.requires_grad()) torch::autograd::backward({embedded}, {gradient});
  return nats;
}

StepResult LmTrainer::train_step(const std::function<void(const std::string&)>& /*note*/) {
  require(!done(), "training is done: {} of {} steps", step_, options_.steps);
  std::vector<Batch> batches;
  int64_t count = 0;
  for (int64_t i = 0; i < options_.accumulation; ++i) {
    batches.push_back(next_batch());
    count += predicted(batches.back().targets);
  }
  count = sum_over(options_.processes, count);
  require(count > 0, "no token is predicted in the windows of step {}", step_ + 1);
  const at::AutoGradMode with_grad(true);
  AttentionMethod& method = attention_.at_step(step_);
  auto* lists = dynamic_cast<ListAttention*>(&method);
  if (lists != nullptr) lists->reset_dominance();
  method.reset_pairs();

  StepResult result;
  try {
    for (const Batch& batch : batches) {
      const Autocast autocast(options_.autocast);
      const bool last = &batch == &batches.back();
      result.loss += options_.activation_checkpointing ? accumulate_by_block(method, batch, count, last)
                                                       : accumulate(method, batch, count, last);
    }
    sum_.finish();
  } catch (...) {
    sum_.cancel();  // Else it would still speak to processes that are about to be told of the failure.
    throw;
  }
  result.loss = joint_loss(options_.processes, result.loss);
  result.learning_rate =
      options_.learning_rate * lr_factor(options_.scheduler, step_, options_.steps, options_.warmup_steps);
  result.grad_norm = optimizer_.step(result.learning_rate, options_.max_grad_norm);
  result.step = ++step_;
  result.stage = options_.stage;
  const PairCount pairs = method.pairs();
  const int64_t kept = sum_over(options_.processes, pairs.kept), causal = sum_over(options_.processes, pairs.causal);
  result.pairs_kept = causal > 0 ? static_cast<double>(kept) / static_cast<double>(causal) : 1.0;
  const std::vector<double> dominances =
      gather_from(options_.processes, lists != nullptr ? lists->dominance().largest() : 0.0);
  result.dominance = *std::max_element(dominances.begin(), dominances.end());
  return result;
}

LmTrainer::NamedTensors LmTrainer::state() const {
  NamedTensors saved;
  for (const auto& [name, tensor] : trained_) saved.emplace_back("weights." + name, tensor.detach());
  for (const auto& [name, tensor] : optimizer_.state()) saved.emplace_back("optimizer." + name, tensor);
  for (const auto& [name, tensor] : attention_.state()) saved.emplace_back("attention." + name, tensor);
  return saved;
}

void LmTrainer::load_state(int64_t step, const NamedTensors& state) {
  require(step >= 0 && step <= options_.steps, "checkpoint at step {}, but the run has {} steps", step, options_.steps);
  const std::map<std::string, at::Tensor> by_name(state.begin(), state.end());
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : trained_) {
    const auto found = by_name.find("weights." + name);
    require(found != by_name.end(), "the checkpoint has no {}", name);
    require(found->second.sizes() == tensor.sizes(), "the checkpoint's {} has shape [{}], expected [{}]", name,
            fmt::join(found->second.sizes(), ", "), fmt::join(tensor.sizes(), ", "));
    tensor.copy_(found->second);
  }
  const auto part = [&](const std::string& prefix) {
    NamedTensors found;
    for (const auto& [name, tensor] : state) {
      if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), tensor);
    }
    return found;
  };
  optimizer_.load_state(part("optimizer."));
  attention_.load_state(part("attention."));
  step_ = step;
}

}  // namespace focus
