#include "train/lm_trainer.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "attention/methods/full.h"
#include "attention/methods/registry.h"
#include "base/error.h"
#include "train/lm_loss.h"

namespace focus {
namespace {

const std::filesystem::path kStories = std::filesystem::path(FOCUS_SOURCE_DIR) / "data/models/stories260K";

/// Windows of 24 tokens, every third of two documents.
TrainWindows::Window window(int64_t number) {
  TrainWindows::Window result;
  for (int64_t t = 0; t < 24; ++t) {
    result.ids.push_back(static_cast<int32_t>((7 * t * t + 13 * number + 5) % 500 + 3));
    result.document_start.push_back(number % 3 == 2 && t >= 10 ? 10 : 0);
  }
  return result;
}

struct SmallRun {
  std::unique_ptr<CausalLM> model = load_model(kStories);
  FullAttention full;
  FixedAttention attention{full};
  int64_t drawn = 0;
  std::unique_ptr<LmTrainer> trainer;

  explicit SmallRun(const LmTrainingOptions& options) {
    trainer = std::make_unique<LmTrainer>(*model, attention, model->parameters(), options,
                                          [this] { return window(drawn++); });
  }
  StepResult step() {
    return trainer->train_step([](const std::string&) {});
  }
  std::map<std::string, at::Tensor> weights() const {
    std::map<std::string, at::Tensor> result;
    for (const auto& [name, tensor] : model->parameters()) result[name] = tensor.detach().clone();
    return result;
  }
};

double largest_difference(const SmallRun& a, const SmallRun& b) {
  double result = 0;
  const auto theirs = b.weights();
  for (const auto& [name, tensor] : a.weights()) {
    result = std::max(result, (tensor - theirs.at(name)).abs().max().item<double>());
  }
  return result;
}

/// The mean over all predicted tokens of several windows, by plain autograd, and one step of SGD.
TEST(LmTrainer, OneStepIsPlainGradientDescentOnTheTokenMean) {
  SmallRun run({.steps = 1,
                .batch_size = 2,
                .accumulation = 2,
                .learning_rate = 0.1,
                .warmup_steps = 0,
                .scheduler = LrScheduler::kConstant,
                .optimizer = {.kind = OptimizerKind::kSgd}});
  const auto model = load_model(kStories);
  for (const auto& [name, tensor] : model->parameters()) tensor.set_requires_grad(true);
  at::Tensor sum = at::zeros({}, at::kDouble);
  int64_t count = 0;
  {
    const at::AutoGradMode with_grad(true);
    for (int64_t i = 0; i < 4; ++i) {
      const TrainWindows::Window w = window(i);
      ForwardOptions options;
      options.document_start = at::tensor(w.document_start, at::kInt).unsqueeze(0);
      const at::Tensor targets = next_tokens(w), rows = targets.ge(0).nonzero().squeeze(1);
      FullAttention full;
      const at::Tensor logits =
          model->logits(model->forward(at::tensor(w.ids, at::kLong).unsqueeze(0), full, options))[0];
      const at::Tensor picked =
          at::log_softmax(logits.index_select(0, rows), -1).gather(1, targets.index_select(0, rows).unsqueeze(1));
      sum = sum - picked.sum();
      count += rows.numel();
    }
    EXPECT_EQ(count, 4 * 23 - 1);
    torch::autograd::backward({sum / count});
  }
  const StepResult result = run.step();
  EXPECT_NEAR(result.loss, sum.item<double>() / static_cast<double>(count), 1e-5);
  double norm = 0;
  for (const auto& [name, tensor] : model->parameters()) norm += tensor.grad().square().sum().item<double>();
  norm = std::sqrt(norm);
  EXPECT_NEAR(result.grad_norm, norm, 1e-4 * norm);
  const double scale = 0.1 * std::min(1.0, 1.0 / norm);
  const auto trained = run.weights();
  for (const auto& [name, tensor] : model->parameters()) {
    const at::Tensor expected = tensor.detach() - scale * tensor.grad();
    EXPECT_LE((trained.at(name) - expected).abs().max().item<double>(), 1e-6) << name;
  }
}

TEST(LmTrainer, HowWindowsAreSplitIntoPassesDoesNotMatter) {
  SmallRun whole({.steps = 2, .batch_size = 4}), split({.steps = 2, .batch_size = 1, .accumulation = 4});
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(whole.step().loss, split.step().loss, 1e-5);
  // Adam divides by the root of tiny squares, so that rounding of the first gradients shows.
  EXPECT_LE(largest_difference(whole, split), 2e-5);
}

TEST(LmTrainer, ActivationCheckpointingChangesOnlyRounding) {
  // The pass without gradients takes each norm in one go over a row; SGD does not blow up what that rounds otherwise.
  LmTrainingOptions options{.steps = 2, .batch_size = 3, .learning_rate = 0.1};
  options.optimizer.kind = OptimizerKind::kSgd;
  SmallRun kept(options);
  options.activation_checkpointing = true;
  SmallRun again(options);
  for (int i = 0; i < 2; ++i) {
    const double loss = kept.step().loss;
    EXPECT_NEAR(again.step().loss, loss, 1e-6 * loss);
  }
  EXPECT_LE(largest_difference(kept, again), 1e-5);
}

TEST(LmTrainer, AutocastIsCloseAndTrainsEveryWeight) {
  for (const bool checkpointing : {false, true}) {
    SmallRun wide({.steps = 3, .batch_size = 2, .learning_rate = 1e-3});
    SmallRun narrow({.steps = 3,
                     .batch_size = 2,
                     .learning_rate = 1e-3,
                     .activation_checkpointing = checkpointing,
                     .autocast = at::kBFloat16});
    const auto before = narrow.weights();
    for (int i = 0; i < 3; ++i) {
      const double loss = wide.step().loss;
      // Eight bits of mantissa, a few roundings deep.
      EXPECT_NEAR(narrow.step().loss, loss, 0.01 * loss);
    }
    for (const auto& [name, tensor] : narrow.weights()) {
      EXPECT_EQ(tensor.scalar_type(), at::kFloat);
      EXPECT_FALSE(at::equal(tensor, before.at(name))) << name;
    }
  }
}

TEST(LmTrainer, SparseTrainingUsesTheMethodsPairs) {
  const auto model = load_model(kStories);
  MethodOptions options;
  options.routing.window = 2;
  options.routing.sinks = 1;
  const auto method = make_method("window", options);
  int64_t drawn = 0;
  FixedAttention attention(*method);
  LmTrainer trainer(*model, attention, model->parameters(), {.steps = 1, .batch_size = 1},
                    [&] { return window(drawn++); });
  const StepResult result = trainer.train_step([](const std::string&) {});
  // Rows of 1, 2, 3 keys and then three near ones and the sink.
  const double kept = 1 + 2 + 3 + 21 * 4.0, causal = 24 * 25 / 2.0;
  EXPECT_DOUBLE_EQ(result.pairs_kept, kept / causal);
}

TEST(LmTrainer, RestoredStateGoesOnBitForBit) {
  const LmTrainingOptions options{.steps = 4, .batch_size = 2};
  SmallRun straight(options), first(options), second(options);
  for (int i = 0; i < 4; ++i) straight.step();
  for (int i = 0; i < 2; ++i) first.step();
  second.trainer->load_state(2, first.trainer->state());
  second.drawn = 4;
  while (!second.trainer->done()) second.step();
  EXPECT_EQ(largest_difference(straight, second), 0);
  EXPECT_THROW(second.trainer->load_state(1, {}), Error);
}

TEST(LmTrainer, WeightsOfLowPrecisionAreRefused) {
  const auto model = load_model(kStories, {.dtype = at::kBFloat16});
  FullAttention full;
  FixedAttention attention(full);
  EXPECT_THROW(LmTrainer(*model, attention, model->parameters(), {}, [] { return window(0); }), Error);
}

}  // namespace
}  // namespace focus
