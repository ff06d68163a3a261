#include "train/gate_trainer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "attention/testing.h"
#include "base/error.h"
#include "train/lm_loss.h"

namespace focus {
namespace {

/// Two attention blocks of two heads over random embeddings.
class ToyModel : public CausalLM {
 public:
  ToyModel() {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
    config_.vocab_size = 40;
    config_.hidden_size = 16;
    config_.num_layers = 2;
    config_.num_heads = config_.num_kv_heads = 2;
    config_.head_dim = 8;
    config_.max_positions = 512;
    embedding_ = at::randn({40, 16}, generator);
    parameters_ = {{"embedding", embedding_}};
  }
  const ModelConfig& config() const override { return config_; }
  at::Tensor embed(const at::Tensor& ids, const at::Tensor&) const override { return at::embedding(embedding_, ids); }
  at::Tensor block(int64_t layer, const at::Tensor& x, const at::Tensor&, AttentionMethod& method,
                   const ForwardOptions& options) const override {
    AttentionInput input;
    input.layer = layer;
    input.hidden = x;
    input.q = input.k = input.v = x.view({x.size(0), x.size(1), 2, 8}).transpose(1, 2);
    input.scale = 0.5;
    input.document_start = options.document_start;
    return x + method.attend(input).transpose(1, 2).reshape(x.sizes());
  }
  at::Tensor final_norm(const at::Tensor& x) const override { return x; }
  at::Tensor logits(const at::Tensor& hidden) const override { return at::matmul(hidden, embedding_.t()) * 0.2; }
  const std::vector<std::pair<std::string, at::Tensor>>& parameters() const override { return parameters_; }
  std::string attention_module() const override { return "layers.{}"; }

 private:
  ModelConfig config_;
  at::Tensor embedding_;
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
};

TrainWindows::Window window_of(int64_t index, int64_t length = 96) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(100 + index));
  const at::Tensor ids = at::randint(0, 40, {length}, generator, at::kInt);
  TrainWindows::Window window;
  window.ids.assign(ids.const_data_ptr<int32_t>(), ids.const_data_ptr<int32_t>() + length);
  window.document_start.assign(static_cast<size_t>(length), 0);
  return window;
}

GateTrainingOptions small_options() {
  GateTrainingOptions options;
  options.routing = RoutingConfig::symmetric_defaults();
  options.routing.groups = 4;
  options.routing.window = 8;
  options.routing.sinks = 2;
  options.routing.group_dim = 6;
  options.steps = 12;
  options.warmup_steps = 2;
  options.calibration_windows = 4;
  return options;
}

TEST(LmLoss, EqualsTheWholeCrossEntropyAndItsGradient) {
  const ToyModel model;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const at::Tensor hidden = at::randn({600, 16}, generator);
  at::Tensor targets = at::randint(0, 40, {600}, generator, at::kLong);
  targets.slice(0, 0, 600, 7).fill_(-1);
  const at::Tensor leaf = hidden.clone().set_requires_grad(true);
  const at::Tensor whole = at::cross_entropy_loss(model.logits(leaf), targets, {}, at::Reduction::Mean, -1);
  const at::Tensor gradient = torch::autograd::grad({whole}, {leaf})[0];
  const LmLoss loss = lm_loss(model, hidden, targets);
  EXPECT_NEAR(loss.nats, whole.item<double>(), 1e-6);
  EXPECT_TRUE(testing::close(loss.hidden_gradient, gradient, 1e-9, 1e-5));
  EXPECT_THROW(lm_loss(model, hidden, at::full({600}, int64_t{-1})), Error);
}

TEST(GateTrainer, LearnsAWindowByHeartAndBalancesItsGroups) {
  const ToyModel model;
  for (const bool shared : {false, true}) {
    GateTrainingOptions options = small_options();
    options.routing.shared = shared;
    options.steps = 40;
    options.learning_rate = 3e-2;
    GateTrainer trainer(model, options, [] { return window_of(0); });
    const double first = trainer.train_step({}).loss;
    StepResult last;
    while (!trainer.done()) last = trainer.train_step({});
    EXPECT_LT(last.loss, first - 0.01);
    EXPECT_EQ(last.step, 40);
    EXPECT_GT(last.pairs_kept, 0.2);
    EXPECT_LT(last.pairs_kept, 0.9);
    for (const double share : trainer.calibrate()) EXPECT_LT(share, 0.35);
    const auto routers = trainer.routers();
    ASSERT_EQ(routers.size(), 2u);
    EXPECT_EQ(routers.at(1).centroids.sizes(), at::IntArrayRef({shared ? 1 : 2, 4, 6}));
    EXPECT_FALSE(at::equal(routers.at(0).potentials, at::zeros_like(routers.at(0).potentials)));
    EXPECT_FALSE(routers.at(0).projection.requires_grad());
    EXPECT_NO_THROW(Router(options.routing, routers));
  }
}

TEST(GateTrainer, AResumedRunIsTheSameRun) {
  const ToyModel model;
  const GateTrainingOptions options = small_options();
  const auto finish = [](GateTrainer& trainer, int64_t until) {
    while (trainer.step() < until) trainer.train_step({});
  };
  int64_t position = 0;
  const auto next = [&] { return window_of(position++); };
  GateTrainer whole(model, options, next);
  finish(whole, 12);
  whole.calibrate();
  for (const int64_t cut : {0, 1, 5, 12}) {
    position = 0;
    GateTrainer before(model, options, next);
    finish(before, cut);
    GateTrainer after(model, options, next);
    after.load_state(cut, before.state());
    finish(after, 12);
    after.calibrate();
    for (const auto& [layer, router] : whole.routers()) {
      for (const char* name : {"projection", "centroids", "potentials"}) {
        EXPECT_TRUE(at::equal(router.tensor(name), after.routers().at(layer).tensor(name))) << name << " after " << cut;
      }
    }
  }
}

TEST(GateTrainer, ThePackedWindowsLossIsThatOfItsDocuments) {
  const ToyModel model;
  GateTrainingOptions options = small_options();
  options.sharpness = 1e6;  // The gate is 1 for all pairs: groups play no part.
  const auto loss_of = [&](const TrainWindows::Window& window) {
    return GateTrainer(model, options, [&] { return window; }).train_step({}).loss;
  };
  const TrainWindows::Window whole = window_of(0);
  TrainWindows::Window packed = whole, first, second;
  for (size_t t = 0; t < whole.ids.size(); ++t) {
    packed.document_start[t] = t < 40 ? 0 : 40;
    (t < 40 ? first : second).ids.push_back(whole.ids[t]);
    (t < 40 ? first : second).document_start.push_back(0);
  }
  // 39 and 55 predicted tokens.
  EXPECT_NEAR(loss_of(packed), (39 * loss_of(first) + 55 * loss_of(second)) / 94, 1e-5);
}

TEST(GateTrainer, WindowsWithoutFarPairsAreRefused) {
  const ToyModel model;
  GateTrainer trainer(model, small_options(), [] { return window_of(0, 11); });
  EXPECT_THROW(trainer.train_step({}), Error);
}

}  // namespace
}  // namespace focus
