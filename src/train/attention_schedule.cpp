#include "train/attention_schedule.h"

#include <charconv>
#include <map>

#include "base/error.h"
#include "base/log.h"

namespace focus {

namespace {

constexpr const char* kFittedAt = "fitted_at";
// Of the order of windows that routers see, apart from that of the weights.
constexpr int64_t kSeedStride = 1'000'003;

}  // namespace

RefittedAttention::RefittedAttention(const CausalLM& model, std::shared_ptr<const TokenSource> text, Options options)
    : model_(model), text_(std::move(text)), options_(std::move(options)) {
  require(options_.refit_every >= 1 && options_.dense_steps >= 0,
          "routers are trained again after at least one step, not {}", options_.refit_every);
}

AttentionMethod& RefittedAttention::at_step(int64_t step) {
  const int64_t since = step - options_.dense_steps;
  if (since >= 0 && since % options_.refit_every == 0 && fitted_at_ != step) fit(step);
  return current();
}

AttentionMethod& RefittedAttention::current() {
  if (focus_) return *focus_;
  return full_;
}

void RefittedAttention::fit(int64_t step) {
  CentroidTrainingOptions options = options_.centroids;
  options.distillation.seed += kSeedStride * (step + 1);
  TrainWindows windows(text_, options_.context, static_cast<uint64_t>(options.distillation.seed), "the text");
  CentroidTrainer trainer(model_, options, [&] { return windows.next(); });
  double loss = 0;
  while (!trainer.done()) loss = trainer.train_step([](const std::string&) {}).loss;
  trainer.calibrate();
  focus_ =
      std::make_unique<FocusAttention>(std::make_shared<const Router>(options.distillation.routing, trainer.routers()));
  fitted_at_ = step;
  if (options_.processes != nullptr) {
    NamedTensors shared;
    for (const auto& [name, tensor] : state()) {
      at::Tensor copy = tensor.detach().clone(at::MemoryFormat::Contiguous);
      if (options_.processes->rank() != 0) copy.zero_();
      options_.processes->all_reduce(copy);
      shared.emplace_back(name, copy);
    }
    load_state(shared);
  }
  log_info("step {}: routers trained on {} windows, relative error of the blocks {:.3f}", step, options.steps, loss);
}

AttentionSchedule::NamedTensors RefittedAttention::state() const {
  if (!focus_) return {};
  NamedTensors saved = {{kFittedAt, at::scalar_tensor(fitted_at_, at::TensorOptions(at::kLong))}};
  const Router& router = focus_->router();
  for (const auto& [layer, weights] : router.layers()) {
    for (const auto& [name, shape] : LayerRouter::layout(router.config(), router.hidden_size(), router.head_sets())) {
      saved.emplace_back(fmt::format("layers.{}.{}", layer, name), weights.tensor(name));
    }
  }
  return saved;
}

void RefittedAttention::load_state(const NamedTensors& state) {
  focus_.reset();
  fitted_at_ = -1;
  std::map<int64_t, LayerRouter> layers;
  for (const auto& [name, tensor] : state) {
    if (name == kFittedAt) {
      fitted_at_ = tensor.item<int64_t>();
      continue;
    }
    const std::string prefix = "layers.";
    const size_t dot = name.find('.', prefix.size());
    int64_t layer = -1;
    if (name.starts_with(prefix) && dot != std::string::npos) {
      std::from_chars(name.data() + prefix.size(), name.data() + dot, layer);
    }
    require(layer >= 0, "the checkpoint's '{}' is no tensor of a router", name);
    layers[layer].tensor(name.substr(dot + 1)) = tensor.clone();
  }
  if (layers.empty()) return;
  focus_ = std::make_unique<FocusAttention>(
      std::make_shared<const Router>(options_.centroids.distillation.routing, std::move(layers)));
}

}  // namespace focus
