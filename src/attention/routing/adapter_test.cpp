#include "attention/routing/adapter.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "attention/routing/testing.h"
#include "base/error.h"
#include "base/files.h"
#include "weights/safetensors.h"

namespace focus {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::random_router;

class AdapterTest : public testing::Test {
 protected:
  AdapterTest() {
    config_.groups = 10;
    config_.groups_per_token = 3;
    adapter_.router = std::make_shared<Router>(random_router(config_, {0, 2}, 24, 2, 1));
    adapter_.base_model_name_or_path = "some/base\"model";
    adapter_.base_fingerprint = "0123456789abcdef";
    adapter_.training = {{"steps", 80}};
  }
  ~AdapterTest() override { fs::remove_all(root_); }

  fs::path folder() const { return root_ / "adapter"; }
  fs::path weights() const { return folder() / "adapter_model.safetensors"; }

  std::vector<std::pair<std::string, at::Tensor>> stored() const {
    const SafetensorsFile file = SafetensorsFile::open(weights());
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const std::string& name : file.names()) tensors.emplace_back(name, file.tensor(name).clone());
    return tensors;
  }

  void change_config(const std::string& name, const nlohmann::json& value) {
    const fs::path file = folder() / "adapter_config.json";
    nlohmann::json config = nlohmann::json::parse(read_file(file));
    if (value.is_null()) {
      config.erase(name);
    } else {
      config[name] = value;
    }
    std::ofstream(file) << config.dump();
  }

  void expect_refused(const std::string& text, const AdapterLoadOptions& options = {}) {
    try {
      load_adapter(folder(), options);
      ADD_FAILURE() << "accepted; expected: " << text;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(text));
    }
  }

  RoutingConfig config_;
  Adapter adapter_;
  fs::path root_ = fs::temp_directory_path() /
                   (std::string("focus_adapter_") + testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(AdapterTest, ComesBackAsItWas) {
  save_adapter(folder(), adapter_);
  const Adapter loaded = load_adapter(folder(), {"0123456789abcdef", false});
  EXPECT_EQ(loaded.base_model_name_or_path, adapter_.base_model_name_or_path);
  EXPECT_EQ(loaded.base_fingerprint, adapter_.base_fingerprint);
  EXPECT_EQ(loaded.training, adapter_.training);
  EXPECT_TRUE(loaded.base_matches);
  EXPECT_EQ(loaded.router->config().groups, 10);
  ASSERT_EQ(loaded.router->layers().size(), 2U);
  for (const auto& [number, layer] : adapter_.router->layers()) {
    for (const auto& [name, shape] : LayerRouter::layout(config_, 24, 2)) {
      EXPECT_TRUE(at::equal(layer.tensor(name), loaded.router->layers().at(number).tensor(name))) << name;
    }
  }
  EXPECT_THAT(read_file(folder() / "README.md"), HasSubstr("base_model: \"some/base\\\"model\""));
  EXPECT_EQ(stored().front().first, "base_model.model.model.layers.0.self_attn.focus.query_projection");
  save_adapter(folder(), adapter_);  // replaces
  EXPECT_NO_THROW(load_adapter(folder()));
}

TEST_F(AdapterTest, Bfloat16KeepsPotentialsExact) {
  save_adapter(folder(), adapter_, at::kBFloat16);
  const Adapter loaded = load_adapter(folder());
  const LayerRouter& before = adapter_.router->layers().at(2);
  const LayerRouter& after = loaded.router->layers().at(2);
  EXPECT_TRUE(at::equal(before.potentials, after.potentials));
  EXPECT_TRUE(at::equal(before.key_projection.to(at::kBFloat16).to(at::kFloat), after.key_projection));
  EXPECT_EQ(after.key_projection.scalar_type(), at::kFloat);
}

TEST_F(AdapterTest, AllFormsAndModules) {
  RoutingConfig symmetric = RoutingConfig::symmetric_defaults();
  symmetric.shared = true;
  adapter_.router = std::make_shared<Router>(random_router(symmetric, {0, 1, 2}, 24, 2, 2));
  adapter_.module = "transformer.h.{}.attn";
  save_adapter(folder(), adapter_);
  EXPECT_TRUE(load_adapter(folder()).router->config().symmetric);
  EXPECT_EQ(stored().front().first, "base_model.model.transformer.h.0.attn.focus.projection");
  config_.global_group = true;
  adapter_.router = std::make_shared<Router>(random_router(config_, {7}, 24, 2, 3));
  save_adapter(folder(), adapter_);
  EXPECT_EQ(load_adapter(folder()).router->layers().at(7).codebook.size(1), 11);
  adapter_.module = "layers";
  EXPECT_THROW(save_adapter(folder(), adapter_), Error);
  EXPECT_NO_THROW(load_adapter(folder()));  // the former one is still there
}

class ScaledAdapterTest : public AdapterTest {
 protected:
  ScaledAdapterTest() {
    at::manual_seed(5);
    HeadScales scales;
    for (const int64_t layer : {0, 1}) scales[layer] = {.score_factor = at::rand({6}), .output_gain = at::randn({6})};
    adapter_.scales = std::make_shared<const HeadScales>(std::move(scales));
  }
};

TEST_F(ScaledAdapterTest, HeadScalesComeBackExact) {
  const auto lists = adapter_.router;
  for (const bool with_lists : {true, false}) {
    adapter_.router = with_lists ? lists : nullptr;
    save_adapter(folder(), adapter_, at::kBFloat16);
    const Adapter loaded = load_adapter(folder());
    EXPECT_EQ(loaded.router != nullptr, with_lists);
    ASSERT_TRUE(loaded.scales != nullptr);
    ASSERT_EQ(loaded.scales->size(), 2U);
    for (const auto& [layer, scale] : *adapter_.scales) {
      EXPECT_TRUE(at::equal(loaded.scales->at(layer).score_factor, scale.score_factor));
      EXPECT_TRUE(at::equal(loaded.scales->at(layer).output_gain, scale.output_gain));
    }
    EXPECT_THAT(read_file(folder() / "README.md"), HasSubstr("base_model: \"some/base\\\"model\""));
  }
  EXPECT_EQ(stored().size(), 4U);
  EXPECT_EQ(stored().front().first, "base_model.model.model.layers.0.self_attn.focus.score_factor");
  adapter_.scales = nullptr;
  EXPECT_THROW(save_adapter(folder(), adapter_), Error);
}

TEST_F(ScaledAdapterTest, Version2HadNone) {
  save_adapter(folder(), adapter_);
  change_config("format_version", 2);
  expect_refused("focus.score_factor is not part of this adapter");
  auto tensors = stored();
  std::erase_if(tensors, [](const auto& entry) {
    return entry.first.ends_with(".score_factor") || entry.first.ends_with(".output_gain");
  });
  write_safetensors(weights(), tensors);
  change_config("scaled_layers", nullptr);
  const Adapter loaded = load_adapter(folder());
  EXPECT_EQ(loaded.scales, nullptr);
  EXPECT_EQ(loaded.router->layers().size(), 2U);
  change_config("format_version", 3);
  change_config("scaled_layers", {0, 1});
  expect_refused("the key base_model.model.model.layers.0.self_attn.focus.score_factor is missing");
}

TEST_F(ScaledAdapterTest, BadHeadScalesAreNamed) {
  const std::vector<std::tuple<std::string, nlohmann::json, std::string>> cases = {
      {"query_heads", 5, "focus.score_factor has the shape [6], expected [5]"},
      {"query_heads", "six", "\"query_heads\" is \"six\", expected a positive integer"},
      {"scaled_layers", {0, 0}, "\"scaled_layers\" holds 0 twice"},
      {"scaled_layers", {0}, "layers.1.self_attn.focus.score_factor is not part of this adapter"},
      {"scaled_layers", {0, 2}, "layers.2.self_attn.focus.score_factor is missing"},
  };
  for (const auto& [name, value, text] : cases) {
    save_adapter(folder(), adapter_);
    change_config(name, value);
    expect_refused(text);
  }
  HeadScales uneven = *adapter_.scales;
  uneven[1].output_gain = at::ones({5});
  adapter_.scales = std::make_shared<const HeadScales>(uneven);
  EXPECT_THROW(save_adapter(folder(), adapter_), Error);
}

TEST_F(AdapterTest, AnotherBaseIsRefusedUnlessForced) {
  save_adapter(folder(), adapter_);
  expect_refused("not on this model (fingerprint ffff)", {"ffff", false});
  EXPECT_FALSE(load_adapter(folder(), {"ffff", true}).base_matches);
}

TEST_F(AdapterTest, BadKeysAreNamed) {
  save_adapter(folder(), adapter_);
  const auto good = stored();
  auto tensors = good;
  tensors.erase(tensors.begin() + 3);
  write_safetensors(weights(), tensors);
  expect_refused("the key " + good[3].first + " is missing");

  tensors = good;
  tensors.emplace_back("base_model.model.model.layers.1.self_attn.focus.codebook", at::ones({1}));
  write_safetensors(weights(), tensors);
  expect_refused("the key base_model.model.model.layers.1.self_attn.focus.codebook is not part of this adapter");

  tensors = good;
  tensors[3].second = at::ones({2, 10, 16});
  write_safetensors(weights(), tensors);
  expect_refused(good[3].first + " has the shape [2, 10, 16], expected [2, 10, 17]");

  tensors = good;
  tensors[3].second = good[3].second.clone();
  tensors[3].second[1][2][3] = std::numeric_limits<float>::infinity();
  write_safetensors(weights(), tensors);
  expect_refused(good[3].first + " has values that are not finite");

  tensors[3].second = at::ones({2, 10, 17}, at::kInt);
  write_safetensors(weights(), tensors);
  expect_refused(good[3].first + " is Int");
}

TEST_F(AdapterTest, BadConfigurationsAreNamed) {
  const std::vector<std::tuple<std::string, nlohmann::json, std::string>> cases = {
      {"peft_type", "LORA", "peft_type LORA, expected FOCUS"},
      {"format_version", 1, "format_version 1, this program reads 2 to 3"},
      {"format_version", 4, "format_version 4, this program reads 2 to 3"},
      {"scaled_layers", nullptr, "\"scaled_layers\" is missing"},
      {"scaled_layers", {0}, "\"query_heads\" is missing"},
      {"groups", nullptr, "\"groups\" is missing"},
      {"groups", "many", "\"groups\" is \"many\", expected an integer"},
      {"groups", 10.5, "\"groups\" is 10.5, expected an integer"},
      {"groups_per_token", 11, "--groups-per-token 11: at most --groups 10"},
      {"layers_to_transform", {0, 0}, "holds 0 twice"},
      {"layers_to_transform", {-1}, "holds -1"},
      {"layers_to_transform", nlohmann::json::array(), "not part of this adapter"},
      {"list_sets", 3, "has the shape [2, 16, 24], expected [3, 16, 24]"},
      {"hidden_size", -5, "expected a positive integer"},
      {"module", "model", "expected a name with {}"},
      {"tau", 0, "--tau 0"},
  };
  for (const auto& [name, value, text] : cases) {
    save_adapter(folder(), adapter_);
    change_config(name, value);
    expect_refused(text);
  }
  std::ofstream(folder() / "adapter_config.json") << "{ not json";
  expect_refused("not valid JSON");
  fs::remove(weights());
  expect_refused("it has no adapter_model.safetensors");
  fs::remove_all(folder());
  expect_refused("no such folder");
}

}  // namespace
}  // namespace focus
