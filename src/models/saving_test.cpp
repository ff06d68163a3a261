#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "attention/methods/full.h"
#include "base/error.h"
#include "base/files.h"
#include "models/model.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

const fs::path kStories = fs::path(FOCUS_SOURCE_DIR) / "data/models/stories260K";

class SavingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / fmt::format("focus_saving_{}", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(SavingTest, SavedModelIsTheSameModel) {
  const auto model = load_model(kStories);
  save_model(folder_ / "copy", *model, kStories, at::kFloat);
  const auto copy = load_model(folder_ / "copy");
  ASSERT_EQ(copy->parameters().size(), model->parameters().size());
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_EQ(copy->parameters()[i].first, model->parameters()[i].first);
    EXPECT_TRUE(at::equal(copy->parameters()[i].second, model->parameters()[i].second));
  }
  EXPECT_TRUE(fs::exists(folder_ / "copy/tokenizer.json"));
}

TEST_F(SavingTest, DtypeOfTheFileIsTheOneAskedFor) {
  const auto model = load_model(kStories);
  save_model(folder_ / "half", *model, kStories, at::kBFloat16);
  const auto half = load_model(folder_ / "half");
  EXPECT_EQ(half->parameters().front().second.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(half->parameters().back().second, model->parameters().back().second.to(at::kBFloat16)));
  EXPECT_EQ(nlohmann::json::parse(read_file(folder_ / "half/config.json")).at("dtype"), "bfloat16");
}

TEST_F(SavingTest, FailureKeepsTheFormerFolder) {
  const auto model = load_model(kStories);
  save_model(folder_ / "model", *model, kStories, at::kFloat);
  EXPECT_THROW(save_model(folder_ / "model", *model, folder_ / "absent", at::kFloat), Error);
  EXPECT_NO_THROW(load_model(folder_ / "model"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST(InitModel, StartsAsTransformersDoes) {
  const auto model = init_model(kStories, 7);
  for (const auto& [name, tensor] : model->parameters()) {
    if (tensor.dim() == 1) {
      EXPECT_TRUE(at::equal(tensor, at::ones_like(tensor))) << name;
      continue;
    }
    // The deviation of n samples is within 5 / sqrt(2 n) of the true one.
    const double deviation = tensor.std().item<double>() / 0.02;
    EXPECT_NEAR(deviation, 1.0, 5 / std::sqrt(2.0 * static_cast<double>(tensor.numel()))) << name;
  }
  // As little knowledge as there can be: the loss of the first step is that of guessing.
  FullAttention full;
  const at::Tensor ids = at::randint(3, 512, {1, 32}, at::kLong);
  const at::Tensor nll = -at::log_softmax(model->logits(model->forward(ids, full)), -1).mean();
  EXPECT_NEAR(nll.item<double>(), std::log(static_cast<double>(model->config().vocab_size)), 0.1);
}

TEST(InitModel, DependsOnTheSeedAlone) {
  const auto a = init_model(kStories, 1), b = init_model(kStories, 1), c = init_model(kStories, 2);
  EXPECT_EQ(model_fingerprint(*a), model_fingerprint(*b));
  EXPECT_NE(model_fingerprint(*a), model_fingerprint(*c));
}

}  // namespace
}  // namespace focus
