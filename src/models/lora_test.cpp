#include "models/lora.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "attention/methods/full.h"
#include "base/error.h"
#include "base/files.h"
#include "weights/safetensors.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

const fs::path kStories = fs::path(FOCUS_SOURCE_DIR) / "data/models/stories260K";

at::Tensor logits(const CausalLM& model) {
  FullAttention full;
  return model.logits(model.forward(at::arange(3, 40).unsqueeze(0), full));
}

class LoraTest : public ::testing::Test {
 protected:
  void SetUp() override { folder_ = fs::path(::testing::TempDir()) / fmt::format("focus_lora_{}", ::getpid()); }
  void TearDown() override { fs::remove_all(folder_); }

  /// A model with an update that changes it, saved in folder_.
  at::Tensor save_some() {
    const auto model = load_model(kStories);
    const LoraOptions options{.rank = 3, .alpha = 6, .targets = {"q_proj", "down_proj"}};
    const NamedParameters parameters = attach_lora(*model, options, 1);
    for (const auto& [name, tensor] : parameters) tensor.copy_(at::randn(tensor.sizes()) * 0.1);
    save_lora(folder_, *model, options, parameters, "base");
    return logits(*model);
  }
  /// Rewrites one field of the saved configuration.
  void set(const char* field, const nlohmann::json& value) const {
    nlohmann::json config = nlohmann::json::parse(read_file(folder_ / "adapter_config.json"));
    config[field] = value;
    write_file_atomically(folder_ / "adapter_config.json", config.dump());
  }
  std::string refusal() const {
    try {
      load_lora(*load_model(kStories), folder_);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  fs::path folder_;
};

TEST_F(LoraTest, FreshUpdateChangesNothing) {
  const auto model = load_model(kStories);
  const at::Tensor before = logits(*model);
  const NamedParameters parameters = attach_lora(*model, {}, 1);
  EXPECT_EQ(parameters.size(), 2 * 2 * static_cast<size_t>(model->config().num_layers));
  EXPECT_TRUE(at::equal(logits(*model), before));
}

TEST_F(LoraTest, UpdateIsTheScaledProductAddedToTheWeight) {
  const auto model = load_model(kStories);
  const auto merged = load_model(kStories);
  const LoraOptions options{.rank = 4, .alpha = 12, .targets = {"self_attn.o_proj", "up_proj"}};
  const NamedParameters parameters = attach_lora(*model, options, 1);
  for (const auto& [name, tensor] : parameters) tensor.copy_(at::randn(tensor.sizes()) * 0.1);
  int changed = 0;
  for (const auto& [name, projection] : model->projections()) {
    if (!projection->update) continue;
    for (const auto& [weight_name, weight] : merged->parameters()) {
      if (weight_name != name + ".weight") continue;
      weight.add_(at::matmul(projection->update->b, projection->update->a), 3.0);
      ++changed;
    }
  }
  EXPECT_EQ(changed, 2 * model->config().num_layers);
  EXPECT_TRUE(at::allclose(logits(*model), logits(*merged), 1e-4, 1e-4));
}

TEST_F(LoraTest, SavedUpdateIsTheSameWhenLoaded) {
  const at::Tensor expected = save_some();
  const auto model = load_model(kStories);
  load_lora(*model, folder_);
  EXPECT_TRUE(at::equal(logits(*model), expected));
}

TEST_F(LoraTest, RefusalsNameWhatIsWrong) {
  save_some();
  set("peft_type", "IA3");
  EXPECT_NE(refusal().find("peft_type is 'IA3', expected LORA"), std::string::npos) << refusal();
  set("peft_type", "LORA");
  set("use_dora", true);
  EXPECT_NE(refusal().find("'use_dora' is not supported"), std::string::npos) << refusal();
  set("use_dora", false);
  set("r", 5);
  EXPECT_NE(refusal().find("has shape [3, 64], expected [5, 64]"), std::string::npos) << refusal();
  set("r", 3);
  EXPECT_EQ(refusal(), "");
  const SafetensorsFile file = SafetensorsFile::open(folder_ / "adapter_model.safetensors");
  NamedParameters tensors;
  for (const std::string& name : file.names()) tensors.emplace_back(name, file.tensor(name).clone());
  auto broken = tensors;
  broken.front().second.view(-1)[1] = std::numeric_limits<float>::infinity();
  write_safetensors(folder_ / "adapter_model.safetensors", broken, {});
  EXPECT_NE(refusal().find("not finite"), std::string::npos) << refusal();
  tensors.front().second.zero_();
  tensors.pop_back();
  write_safetensors(folder_ / "adapter_model.safetensors", tensors, {});
  EXPECT_NE(refusal().find("is missing"), std::string::npos) << refusal();
  write_safetensors(folder_ / "adapter_model.safetensors", {{"some.other", at::zeros({1})}}, {});
  EXPECT_NE(refusal().find("'some.other' belongs to no module"), std::string::npos) << refusal();
  write_safetensors(folder_ / "adapter_model.safetensors", tensors, {{"base_fingerprint", "0"}});
  EXPECT_NE(refusal().find("made for another base model"), std::string::npos) << refusal();
  EXPECT_THROW(attach_lora(*load_model(kStories), {.targets = {"z_proj"}}, 1), UsageError);
}

}  // namespace
}  // namespace focus
