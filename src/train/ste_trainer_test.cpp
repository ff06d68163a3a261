#include "train/ste_trainer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "attention/routing/testing.h"
#include "base/error.h"

namespace focus {
namespace {

constexpr int64_t kVocabulary = 40, kWidth = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 8;

/// Three attention blocks, four query heads on two KV heads, over random embeddings.
class ToyModel : public CausalLM {
 public:
  ToyModel() {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
    config_.vocab_size = kVocabulary;
    config_.hidden_size = kWidth;
    config_.num_layers = 3;
    config_.num_heads = kHeads;
    config_.num_kv_heads = kKvHeads;
    config_.head_dim = kHeadDim;
    config_.max_positions = 512;
    embedding_ = at::randn({kVocabulary, kWidth}, generator);
    parameters_ = {{"embedding", embedding_}};
  }
  const ModelConfig& config() const override { return config_; }
  at::Tensor embed(const at::Tensor& ids, const at::Tensor&) const override { return at::embedding(embedding_, ids); }
  at::Tensor block(int64_t layer, const at::Tensor& x, const at::Tensor&, AttentionMethod& method,
                   const ForwardOptions& options) const override {
    AttentionInput input;
    input.layer = layer;
    input.hidden = x;
    input.q = x.view({x.size(0), x.size(1), kHeads, kHeadDim}).transpose(1, 2);
    input.k = input.v = input.q.slice(1, 0, kKvHeads);
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
  const at::Tensor ids = at::randint(0, kVocabulary, {length}, generator, at::kInt);
  TrainWindows::Window window;
  window.ids.assign(ids.const_data_ptr<int32_t>(), ids.const_data_ptr<int32_t>() + length);
  window.document_start.assign(static_cast<size_t>(length), 0);
  return window;
}

std::shared_ptr<const Router> small_router(const std::vector<int64_t>& layers, bool global_group = false) {
  RoutingConfig config;
  config.groups = 6;
  config.groups_per_token = 2;
  config.window = 6;
  config.sinks = 2;
  config.group_dim = 6;
  config.global_group = global_group;
  return std::make_shared<const Router>(testing_support::random_router(config, layers, kWidth, kKvHeads, 3));
}

SteTrainingOptions small_options() {
  SteTrainingOptions options;
  options.steps = 12;
  options.warmup_steps = 2;
  options.calibration_windows = 3;
  return options;
}

bool same(const SteTrainer& a, const SteTrainer& b) {
  bool equal = true;
  for (const auto& [layer, weights] : a.routers()) {
    const LayerRouter other = b.routers().at(layer);
    equal = equal && at::equal(weights.codebook, other.codebook) && at::equal(weights.potentials, other.potentials);
  }
  const auto ours = a.scales(), theirs = b.scales();
  for (const auto& [layer, scale] : *ours) {
    const HeadScale& other = theirs->at(layer);
    equal =
        equal && at::equal(scale.score_factor, other.score_factor) && at::equal(scale.output_gain, other.output_gain);
  }
  return equal;
}

TEST(SteTrainer, LearnsAWindowByHeart) {
  const ToyModel model;
  for (const bool global_group : {false, true}) {
    for (const bool lists : {true, false}) {
      SteTrainingOptions options = small_options();
      options.steps = 40;
      options.learning_rate = 2e-2;
      options.repeats = 0;
      options.lists = lists;
      options.scales = !lists;
      const auto router = small_router({0, 2}, global_group);
      SteTrainer trainer(model, router, nullptr, options, [] { return window_of(0); });
      const double first = trainer.train_step({}).loss;
      StepResult last;
      while (!trainer.done()) last = trainer.train_step({});
      // 20 codebook entries a set decide of which of a hundred tokens are seen: little is to be gained by them alone.
      EXPECT_LT(last.loss, first - (lists ? 0.002 : 0.02)) << lists;
      EXPECT_EQ(last.stage, "lm-ste");
      EXPECT_GT(last.pairs_kept, 0.3);
      EXPECT_LT(last.pairs_kept, 1.0);
      EXPECT_EQ(trainer.scales() != nullptr, !lists);
      for (const auto& [layer, weights] : trainer.routers()) {
        EXPECT_EQ(at::equal(weights.codebook, router->layers().at(layer).codebook), !lists);
        EXPECT_TRUE(at::equal(weights.query_projection, router->layers().at(layer).query_projection));
        EXPECT_FALSE(weights.codebook.requires_grad());
      }
      trainer.calibrate();
      EXPECT_NO_THROW(Router(router->config(), trainer.routers()));
    }
  }
}

TEST(SteTrainer, FullAttentionTrainsScalesOfEveryLayer) {
  const ToyModel model;
  SteTrainingOptions options = small_options();
  options.steps = 30;
  options.learning_rate = 1e-2;
  SteTrainer trainer(model, nullptr, nullptr, options, [] { return window_of(0); });
  const double first = trainer.train_step({}).loss;
  StepResult last;
  while (!trainer.done()) last = trainer.train_step({});
  EXPECT_LT(last.loss, first - 0.02);
  EXPECT_EQ(last.pairs_kept, 1);
  EXPECT_TRUE(trainer.calibrate().empty());
  EXPECT_TRUE(trainer.routers().empty());
  const auto scales = trainer.scales();
  ASSERT_EQ(scales->size(), 3u);
  for (const auto& [layer, scale] : *scales) {
    EXPECT_GT((scale.score_factor - 1).abs().min().item<double>(), 0);
    EXPECT_GT((scale.output_gain - 1).abs().min().item<double>(), 0);
    EXPECT_FALSE(scale.output_gain.requires_grad());
  }
  options.scales = false;
  EXPECT_THROW(SteTrainer(model, nullptr, nullptr, options, [] { return window_of(0); }), Error);
}

TEST(SteTrainer, StartsFromGivenScalesAndLeavesFrozenOnesAlone) {
  const ToyModel model;
  const auto given = std::make_shared<HeadScales>();
  (*given)[1] = {.score_factor = at::tensor({0.5, 1.5, 1.0, 2.0}, at::kFloat), .output_gain = at::full({kHeads}, 0.7)};
  SteTrainingOptions options = small_options();
  const auto next = [] { return window_of(0); };
  SteTrainer trainer(model, small_router({0}), given, options, next);
  EXPECT_TRUE(at::equal(trainer.scales()->at(1).output_gain, given->at(1).output_gain));
  EXPECT_TRUE(at::equal(trainer.scales()->at(2).output_gain, at::ones({kHeads})));
  options.scales = false;
  SteTrainer frozen(model, small_router({0}), given, options, next);
  const double with = frozen.train_step({}).loss;
  EXPECT_EQ(frozen.scales()->size(), 1u);
  EXPECT_TRUE(at::equal(frozen.scales()->at(1).score_factor, given->at(1).score_factor));
  SteTrainer without(model, small_router({0}), nullptr, options, next);
  EXPECT_NE(without.train_step({}).loss, with);
}

TEST(SteTrainer, AResumedRunIsTheSameRun) {
  const ToyModel model;
  const auto router = small_router({0, 2});
  int64_t position = 0;
  const auto next = [&] { return window_of(position++); };
  const auto finish = [](SteTrainer& trainer, int64_t until) {
    while (trainer.step() < until) {
      trainer.train_step({});
      if (trainer.step() == 4) trainer.keep_best();
    }
  };
  for (const bool best : {false, true}) {
    position = best ? 0 : 100;
    const int64_t begin = position;
    SteTrainer whole(model, router, nullptr, small_options(), next);
    const auto run = [&](SteTrainer& trainer, int64_t until) {
      if (best) return finish(trainer, until);
      while (trainer.step() < until) trainer.train_step({});
    };
    run(whole, 12);
    const auto last = whole.scales();
    whole.calibrate();
    // Calibration goes back to the best.
    EXPECT_EQ(at::equal(last->at(0).output_gain, whole.scales()->at(0).output_gain), !best);
    for (const int64_t cut : {0, 1, 5, 12}) {
      position = begin;
      SteTrainer before(model, router, nullptr, small_options(), next);
      run(before, cut);
      SteTrainer after(model, router, nullptr, small_options(), next);
      after.load_state(cut, before.state());
      EXPECT_TRUE(same(before, after));
      run(after, 12);
      after.calibrate();
      EXPECT_TRUE(same(whole, after)) << "cut after " << cut;
    }
  }
}

TEST(SteTrainer, CalibrationBalancesAndReportsPairs) {
  const ToyModel model;
  SteTrainingOptions options = small_options();
  options.learning_rate = 3e-2;
  int64_t position = 0;
  const auto router = small_router({0, 1, 2});
  SteTrainer trainer(model, router, nullptr, options, [&] { return window_of(position++, 256); });
  while (!trainer.done()) trainer.train_step({});
  const std::vector<double> largest = trainer.calibrate();
  ASSERT_EQ(largest.size(), 3u);
  for (const double share : largest) EXPECT_LT(share, 0.35);
  const SteCalibration& pairs = trainer.calibration();
  // The random router at the start is far from even and keeps more.
  EXPECT_LT(pairs.calibrated, pairs.start);
  EXPECT_NE(pairs.trained, pairs.calibrated);
  EXPECT_GT(pairs.calibrated, 0.2);
}

TEST(SteTrainer, SymmetricRoutersTrainScalesOnly) {
  const ToyModel model;
  RoutingConfig config = RoutingConfig::symmetric_defaults();
  config.window = 6;
  const auto router = std::make_shared<const Router>(testing_support::random_router(config, {0}, kWidth, kKvHeads, 3));
  SteTrainingOptions options = small_options();
  EXPECT_THROW(SteTrainer(model, router, nullptr, options, [] { return window_of(0); }), Error);
  options.lists = false;
  SteTrainer trainer(model, router, nullptr, options, [] { return window_of(0); });
  trainer.train_step({});
  EXPECT_EQ(trainer.calibrate().size(), 1u);
}

}  // namespace
}  // namespace focus
