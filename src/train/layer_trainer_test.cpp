#include "train/layer_trainer.h"

#include <gtest/gtest.h>

#include <limits>

#include "attention/routing/formulas.h"
#include "base/error.h"
#include "train/synthetic_layer_test.h"

namespace focus {
namespace {

DistillationOptions small_options() {
  DistillationOptions options;
  options.routing.groups = 8;
  options.routing.groups_per_token = 2;
  options.routing.window = 8;
  options.routing.sinks = 2;
  options.routing.group_dim = 6;
  options.rows = 32;
  options.learning_rate = 2e-2;
  return options;
}

LayerTrainer initialised_trainer(const DistillationOptions& options) {
  LayerTrainer trainer(0, options);
  trainer.observe(synthetic_layer(128, 0));
  trainer.initialise();
  return trainer;
}

TEST(LayerTrainer, ValuesThatAreNotFiniteAreNamed) {
  const auto refused = [](DistillationLayer window) -> std::string {
    LayerTrainer trainer(3, small_options());
    try {
      trainer.observe(window);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(refused(synthetic_layer(128, 0)), "no error");
  DistillationLayer window = synthetic_layer(128, 0);
  window.hidden[5][7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(refused(window).find("layer 3: the model's hidden states are not finite"), std::string::npos);
  window = synthetic_layer(128, 0);
  window.key_weight = window.key_weight / 0.0;
  EXPECT_NE(refused(window).find("layer 3: the model's key weights are not finite"), std::string::npos);
}

TEST(LayerTrainer, BothStagesLowerTheError) {
  LayerTrainer trainer(0, small_options());
  // A start that knows nothing of the layer leaves something to learn.
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(21);
  DistillationLayer start = synthetic_layer(128, 0);
  start.query_weight = at::randn({32, 24}, generator);
  start.key_weight = at::randn({16, 24}, generator);
  trainer.observe(start);
  trainer.initialise();
  double first = 0, last = 0;
  for (int64_t update = 0; update < 60; ++update) {
    const UpdateResult result = trainer.update_index(synthetic_layer(128, 100 + update), update, 60);
    if (update < 5) first += result.loss;
    if (update >= 55) last += result.loss;
    EXPECT_GT(result.kept, 0);
    EXPECT_LT(result.kept, result.causal);
  }
  EXPECT_LT(last, 0.9 * first);
  // The router handed out, in the model's own coordinates, is the one that was trained.
  const DistillationLayer fresh = synthetic_layer(128, 900);
  const LayerRouter router = trainer.router();
  const SampledTeacher teacher(fresh, at::arange(40, 128), 8, 2);
  const at::Tensor scores =
      index_scores(query_features(fresh.hidden.index_select(0, teacher.rows()), router.query_projection),
                   key_features(fresh.hidden, router.key_projection, router.key_bias, 0.1), 0.1);
  const at::Tensor threshold = far_threshold(scores, teacher.far(), 0.125);
  EXPECT_LT(teacher.output_error(at::sigmoid(scores - threshold)).item<double>(), 2 * last / 5);
  for (int64_t window = 0; window < 4; ++window) trainer.collect(synthetic_layer(128, 500 + window).hidden);
  trainer.build_lists();
  first = last = 0;
  for (int64_t update = 0; update < 40; ++update) {
    const UpdateResult result = trainer.update_lists(synthetic_layer(128, 200 + update), update, 40);
    if (update < 5) first += result.loss;
    if (update >= 35) last += result.loss;
    EXPECT_GT(result.dominance, 0);
  }
  EXPECT_LT(last, first);
  EXPECT_LT(trainer.calibrate(), 2.0 / 8);
  EXPECT_TRUE(trainer.router().codebook.isfinite().all().item<bool>());
}

TEST(LayerTrainer, AResumedRunIsTheSameRun) {
  const DistillationOptions options = small_options();
  const auto run = [&](LayerTrainer& trainer, int64_t begin, int64_t end) {
    for (int64_t step = begin; step < end; ++step) {
      if (step < 6) {
        trainer.update_index(synthetic_layer(128, 100 + step), step, 6);
      } else {
        if (!trainer.has_lists()) {
          trainer.collect(synthetic_layer(128, 77).hidden);
          trainer.build_lists();
        }
        trainer.update_lists(synthetic_layer(128, 100 + step), step - 6, 6);
      }
    }
  };
  LayerTrainer whole = initialised_trainer(options);
  run(whole, 0, 12);
  whole.calibrate();
  for (const int64_t cut : {1, 5, 6, 7, 11}) {
    LayerTrainer before = initialised_trainer(options);
    run(before, 0, cut);
    LayerTrainer after(0, options);
    after.load_state(before.state());
    run(after, cut, 12);
    after.calibrate();
    for (const char* name : {"query_projection", "key_projection", "key_bias", "codebook", "potentials"}) {
      EXPECT_TRUE(at::equal(whole.router().tensor(name), after.router().tensor(name))) << name << " after " << cut;
    }
  }
}

TEST(LayerTrainer, GlobalGroupAndSharedListsTrain) {
  DistillationOptions options = small_options();
  options.routing.shared = true;
  options.routing.global_group = true;
  LayerTrainer trainer = initialised_trainer(options);
  EXPECT_EQ(trainer.router().query_projection.size(0), 1);
  trainer.update_index(synthetic_layer(128, 1), 0, 1);
  trainer.collect(synthetic_layer(128, 2).hidden);
  trainer.build_lists();
  EXPECT_EQ(trainer.router().codebook.size(1), 9);
  const at::Tensor wanted = trainer.router().codebook.select(-1, options.routing.group_dim);
  EXPECT_EQ(wanted.argmax(-1).item<int64_t>(), 0);
  EXPECT_GT(trainer.update_lists(synthetic_layer(128, 3), 0, 1).loss, 0);
}

TEST(LayerTrainer, AllListsProbedLetsEverythingThrough) {
  DistillationOptions options = small_options();
  options.routing.groups_per_token = options.routing.groups;
  LayerTrainer trainer = initialised_trainer(options);
  trainer.collect(synthetic_layer(128, 2).hidden);
  trainer.build_lists();
  const UpdateResult result = trainer.update_lists(synthetic_layer(128, 3), 0, 1);
  EXPECT_EQ(result.kept, result.causal);
  EXPECT_LT(result.loss, 1e-6);
}

TEST(LayerTrainer, MoreProbesKeepMorePairsAndLoseLess) {
  for (const bool global : {false, true}) {
    DistillationOptions options = small_options();
    options.routing.global_group = global;
    LayerTrainer trainer = initialised_trainer(options);
    trainer.collect(synthetic_layer(128, 2).hidden);
    trainer.build_lists();
    EXPECT_TRUE(at::equal(trainer.router().probe_exponent, at::ones({2})));
    EXPECT_THROW(trainer.probe_curves(), Error);
    const std::vector<int64_t> grid = probe_grid(2, 8);
    for (int64_t i = 0; i < 3; ++i) trainer.measure_probes(synthetic_layer(128, 300 + i), i, grid);
    const ProbeCurves curves = trainer.probe_curves();
    ASSERT_EQ(curves.error.sizes(), (at::IntArrayRef{2, std::ssize(grid)}));
    EXPECT_TRUE((curves.kept.diff() > 0).all().item<bool>());
    EXPECT_GT(curves.kept.select(1, 0).min().item<double>(), global ? 0.125 : 0.0);
    EXPECT_EQ(curves.kept.select(1, -1).min().item<double>(), 1.0);
    EXPECT_TRUE((curves.error.select(1, 0) > curves.error.select(1, -2)).all().item<bool>());
    EXPECT_LT(curves.error.select(1, -1).max().item<double>(), 1e-9);
    trainer.set_probes({1, 5});
    const Router router(options.routing, {{0, trainer.router()}});
    EXPECT_EQ(router.probes(0), (std::vector<int64_t>{1, 5}));
  }
}

TEST(LayerTrainer, WindowsWithoutFarPairsAreRefused) {
  LayerTrainer trainer = initialised_trainer(small_options());
  EXPECT_THROW(trainer.update_index(synthetic_layer(20, 1), 0, 1), Error);
}

}  // namespace
}  // namespace focus
