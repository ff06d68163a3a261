#include "train/attention_schedule.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "train/lm_trainer.h"

namespace focus {
namespace {

const std::filesystem::path kStories = std::filesystem::path(FOCUS_SOURCE_DIR) / "data/models/stories260K";

/// A model from nothing that trains for six updates: two dense ones, routers, two, routers again, two.
struct ScratchRun {
  std::unique_ptr<CausalLM> model = init_model(kStories, 1);
  std::vector<Document> documents;
  std::unique_ptr<RefittedAttention> attention;
  std::unique_ptr<TrainWindows> windows;
  std::unique_ptr<LmTrainer> trainer;

  ScratchRun() {
    Document& document = documents.emplace_back();
    for (int32_t t = 0; t < 4000; ++t) document.push_back(3 + (t * t % 101 + t % 7) % 500);
    RefittedAttention::Options options;
    options.centroids.steps = 3;
    options.centroids.updates_per_step = 1;
    options.centroids.list_windows = 2;
    options.centroids.budget_windows = 1;
    options.centroids.distillation.rows = 16;
    options.centroids.distillation.routing.groups = 4;
    options.centroids.distillation.routing.groups_per_token = 1;
    options.centroids.distillation.routing.window = 8;
    options.dense_steps = options.refit_every = 2;
    options.context = 64;
    attention = std::make_unique<RefittedAttention>(*model, std::make_shared<MemoryTokens>(documents), options);
    windows = std::make_unique<TrainWindows>(documents, 64, 1, "test");
    trainer = std::make_unique<LmTrainer>(*model, *attention, model->parameters(),
                                          LmTrainingOptions{.steps = 6, .learning_rate = 1e-3},
                                          [this] { return windows->next(); });
  }
  StepResult step() {
    return trainer->train_step([](const std::string&) {});
  }
};

TEST(RefittedAttention, StartsDenseAndThenFollowsTheLists) {
  ScratchRun run;
  std::vector<std::string> names;
  std::vector<at::Tensor> codebooks;
  for (int i = 0; i < 6; ++i) {
    const StepResult result = run.step();
    names.push_back(run.attention->current().name());
    if (names.back() == "full") {
      EXPECT_EQ(result.pairs_kept, 1.0);
      continue;
    }
    EXPECT_LT(result.pairs_kept, 0.95);
    EXPECT_GT(result.dominance, 0.0);
    const auto& focus = dynamic_cast<FocusAttention&>(run.attention->current());
    codebooks.push_back(focus.router().layers().begin()->second.codebook);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"full", "full", "focus", "focus", "focus", "focus"}));
  EXPECT_TRUE(at::equal(codebooks[0], codebooks[1]));
  EXPECT_FALSE(at::equal(codebooks[1], codebooks[2]));
}

TEST(RefittedAttention, ResumedRunIsTheSameRun) {
  ScratchRun whole;
  for (int i = 0; i < 6; ++i) whole.step();
  for (const int cut : {1, 3, 4}) {
    ScratchRun first, second;
    for (int i = 0; i < cut; ++i) first.step();
    second.trainer->load_state(cut, first.trainer->state());
    second.windows->restore(first.windows->state());
    while (!second.trainer->done()) second.step();
    for (size_t i = 0; i < whole.model->parameters().size(); ++i) {
      EXPECT_TRUE(at::equal(whole.model->parameters()[i].second, second.model->parameters()[i].second)) << cut;
    }
  }
  EXPECT_THROW(whole.attention->load_state({{"layers.x", at::zeros({1})}}), Error);
}

TEST(RefittedAttention, TrainingRoutersGivesWeightsNoGradient) {
  ScratchRun run;
  for (const auto& [name, tensor] : run.model->parameters()) tensor.set_requires_grad(true);
  run.attention->at_step(2);
  for (const auto& [name, tensor] : run.model->parameters()) EXPECT_FALSE(tensor.grad().defined()) << name;
}

}  // namespace
}  // namespace focus
