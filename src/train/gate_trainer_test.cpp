#include "train/gate_trainer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "attention/routing/formulas.h"
#include "attention/routing/sinkhorn.h"
#include "attention/testing.h"
#include "base/error.h"
#include "train/lm_loss.h"
#include "train/toy_model_test.h"

namespace focus {
namespace {

using testing::ToyModel;
using testing::window_of;

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

/// A way to train, for tests of all.
struct Variant {
  const char* name;
  GroupBalance balance;
  bool weights = false;
};

const std::vector<Variant>& variants() {
  using enum GroupMitigation;
  static const std::vector<Variant> all = {
      {"sinkhorn", {}},
      {"softmax", {.normaliser = GroupNormaliser::kSoftmax}},
      {"potentials", {.normaliser = GroupNormaliser::kPotentials}},
      {"entropy", {.normaliser = GroupNormaliser::kSoftmax, .mitigation = kEntropyBalance, .balance_weight = 5}},
      {"stop", {.normaliser = GroupNormaliser::kSoftmax, .mitigation = kStopGradient}},
      {"ema", {.normaliser = GroupNormaliser::kPotentials, .mitigation = kEmaCentroids}},
      {"ema alone", {.normaliser = GroupNormaliser::kSoftmax, .mitigation = kEmaCentroids, .freeze_projection = true}},
      {"recluster", {.normaliser = GroupNormaliser::kSoftmax, .mitigation = kRecluster, .recluster_every = 4}},
      {"all weights", {.normaliser = GroupNormaliser::kPotentials}, true},
  };
  return all;
}

/// A trainer with a model of its own, watched on two windows.
struct WatchedRun {
  ToyModel model;
  int64_t position = 0;
  GateTrainer trainer;

  explicit WatchedRun(const Variant& variant)
      : trainer(model, options_of(variant), [this] { return window_of(position++); }) {}
  static GateTrainingOptions options_of(const Variant& variant) {
    GateTrainingOptions options = small_options();
    options.balance = variant.balance;
    options.eval_windows = {window_of(-1), window_of(-2)};
    if (variant.weights) options.weights_learning_rate = 1e-3;
    return options;
  }
  /// Measures after steps 3, 6, 9 and 12.
  void go_on(int64_t until) {
    while (trainer.step() < until) {
      trainer.train_step({});
      if (trainer.step() % 3 == 0) trainer.evaluate();
    }
  }
};

TEST(GateTrainer, AResumedRunIsTheSameRunHoweverGroupsAreKeptEven) {
  for (const Variant& variant : variants()) {
    WatchedRun whole(variant);
    whole.go_on(12);
    whole.trainer.calibrate();
    for (const int64_t cut : {0, 1, 5, 12}) {
      WatchedRun before(variant), after(variant);
      before.go_on(cut);
      after.position = before.position;
      after.trainer.load_state(cut, before.trainer.state());
      after.go_on(12);
      after.trainer.calibrate();
      for (const auto& [layer, router] : whole.trainer.routers()) {
        for (const char* name : {"projection", "centroids", "potentials"}) {
          EXPECT_TRUE(at::equal(router.tensor(name), after.trainer.routers().at(layer).tensor(name)))
              << variant.name << ": " << name << " after " << cut;
        }
      }
      EXPECT_TRUE(at::equal(whole.model.parameters()[0].second, after.model.parameters()[0].second)) << variant.name;
      if (cut == 12) continue;
      EXPECT_EQ(to_json(*whole.trainer.figures()), to_json(*after.trainer.figures())) << variant.name << cut;
      EXPECT_EQ(to_json(*whole.trainer.paths()), to_json(*after.trainer.paths())) << variant.name << cut;
    }
  }
}

TEST(GateTrainer, EachWayMovesWhatItSays) {
  for (const Variant& variant : variants()) {
    WatchedRun run(variant);
    run.go_on(1);
    const auto first = run.trainer.routers();
    const at::Tensor embedding = run.model.parameters()[0].second.detach().clone();
    StepResult last;
    while (!run.trainer.done()) last = run.trainer.train_step({});
    for (const auto& [layer, router] : run.trainer.routers()) {
      EXPECT_EQ(at::equal(router.projection, first.at(layer).projection), variant.balance.freeze_projection)
          << variant.name;
      EXPECT_FALSE(at::equal(router.centroids, first.at(layer).centroids)) << variant.name;
      EXPECT_EQ(at::equal(router.potentials, first.at(layer).potentials),
                variant.balance.normaliser != GroupNormaliser::kPotentials)
          << variant.name;
    }
    EXPECT_EQ(at::equal(run.model.parameters()[0].second, embedding), !variant.weights) << variant.name;
    EXPECT_EQ(last.stage, variant.weights ? "all" : "lm-gate");
    EXPECT_EQ(last.auxiliary_loss.has_value(), variant.balance.mitigation == GroupMitigation::kEntropyBalance);
    // Nothing is left for the gradient.
    EXPECT_EQ(last.grad_norm == 0, std::string(variant.name) == "ema alone");
    const double nats = run.trainer.evaluate();
    EXPECT_EQ(nats, run.trainer.figures()->nats);
    run.trainer.calibrate();
    for (const auto& [layer, router] : run.trainer.routers()) {
      EXPECT_EQ(router.potentials.eq(0).all().item<bool>(), variant.balance.normaliser == GroupNormaliser::kSoftmax)
          << variant.name;
    }
  }
}

TEST(GateTrainer, PotentialsAreThoseOfGroupsMadeAnew) {
  const ToyModel model;
  GateTrainingOptions options = small_options();
  options.balance.normaliser = GroupNormaliser::kPotentials;
  options.balance.mitigation = GroupMitigation::kRecluster;
  options.balance.recluster_every = 5;
  GateTrainer trainer(model, options, [] { return window_of(0); });
  while (trainer.step() < 5) trainer.train_step({});
  const LayerRouter router = trainer.routers().at(0);
  const at::Tensor ids = at::tensor(window_of(0).ids, at::kLong);
  const at::Tensor scores =
      symmetric_scores(model.embed(ids, {}), router.projection, router.centroids, options.routing.tau);
  EXPECT_TRUE(
      testing::close(router.potentials, sinkhorn_potentials(scores, options.routing.sinkhorn_iters), 1e-5, 1e-5));
}

TEST(GateTrainer, WeightsTakeNoGradientsAfterwards) {
  const ToyModel model;
  GateTrainingOptions options = small_options();
  options.weights_learning_rate = 1e-2;
  options.steps = 30;
  double first = 0, last = 0;
  {
    GateTrainer trainer(model, options, [] { return window_of(0); });
    first = trainer.train_step({}).loss;
    while (!trainer.done()) last = trainer.train_step({}).loss;
    EXPECT_TRUE(model.parameters()[0].second.requires_grad());
  }
  EXPECT_FALSE(model.parameters()[0].second.requires_grad());
  EXPECT_LT(last, first - 0.2);
}

TEST(GateTrainer, GoesOnFromGivenRouters) {
  const ToyModel model;
  GateTrainingOptions options = small_options();
  GateTrainer before(model, options, [] { return window_of(0); });
  while (!before.done()) before.train_step({});
  options.start = before.routers();
  options.learning_rate = 1e-9;
  GateTrainer after(model, options, [] { return window_of(0); });
  after.train_step({});
  EXPECT_TRUE(at::allclose(after.routers().at(1).centroids, before.routers().at(1).centroids, 1e-6, 1e-7));
  options.start.erase(1);
  EXPECT_THROW(GateTrainer(model, options, [] { return window_of(0); }), Error);
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
