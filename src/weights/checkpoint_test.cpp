#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "weights/hf_folder.h"
#include "weights/safetensors.h"
#include "weights/state_dict.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << "'" << message << "' lacks '" << word << "'";
  }
}

TEST(StateDict, ListsEveryFaultAtOnce) {
  StateDict weights({{"a", at::ones({2, 3})},
                     {"b", at::ones({4})},
                     {"c", at::ones({1}, at::kLong)},
                     {"extra", at::ones({1})},
                     {"x.inv_freq", at::ones({1})}},
                    "model");
  weights.ignore_suffix(".inv_freq");
  EXPECT_TRUE(weights.take("a", {2, 3}).defined());
  EXPECT_FALSE(weights.take("b", {5}).defined());
  EXPECT_FALSE(weights.take("c", {1}).defined());
  EXPECT_FALSE(weights.take("gone", {1}).defined());
  EXPECT_FALSE(weights.take_optional("also gone", {1}).has_value());
  const std::string message = message_of([&] { weights.require_all_used(); });
  expect_words(message, {"model: ", "1 missing (gone)", "b has shape [4], expected [5]", "c has dtype int64",
                         "1 unused (extra)"});
  EXPECT_EQ(message.find("inv_freq"), std::string::npos);
}

TEST(StateDict, ShortensLongListsAndRefusesDuplicates) {
  StateDict weights({}, "model");
  for (int i = 0; i < 23; ++i) weights.take(fmt::format("w{}", i), {1});
  expect_words(message_of([&] { weights.require_all_used(); }), {"23 missing", "w9 and 13 more"});
  EXPECT_THROW(StateDict({{"a", at::ones({1})}, {"a", at::ones({1})}}, "model"), Error);
  StateDict clean({{"a", at::ones({1})}}, "model");
  clean.take("a", {1});
  EXPECT_NO_THROW(clean.require_all_used());
}

class HfFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("{}-folder", ::getpid());
    fs::create_directories(folder_);
    put("config.json", "{}");
  }
  void TearDown() override { fs::remove_all(folder_); }
  void put(const std::string& name, const std::string& text) { write_file_atomically(folder_ / name, text); }
  std::string weights_fault() {
    return message_of([&] { HfFolder::open(folder_).weights(); });
  }
  fs::path folder_;
};

TEST_F(HfFolderTest, NamesMissingOrBrokenParts) {
  expect_words(message_of([&] { HfFolder::open(folder_ / "none"); }), {"none", "no such model folder"});
  expect_words(message_of([&] { HfFolder::open(folder_ / "config.json"); }), {"not a folder"});
  expect_words(weights_fault(), {"neither model.safetensors nor model.safetensors.index.json"});
  put("config.json", "{\"a\": ");
  expect_words(weights_fault(), {"config.json", "not valid JSON at byte"});
  put("config.json", "[]");
  expect_words(weights_fault(), {"not a JSON object"});
  put("config.json", "");
  expect_words(weights_fault(), {"empty"});
}

TEST_F(HfFolderTest, ReadsOnlyTheShardsOfTheIndex) {
  write_safetensors(folder_ / "one.safetensors", {{"a", at::ones({1})}});
  write_safetensors(folder_ / "two.safetensors", {{"b", at::ones({2})}});
  write_safetensors(folder_ / "stray.safetensors", {{"a", at::zeros({9})}, {"z", at::zeros({9})}});
  put("model.safetensors.index.json", R"({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}})");
  StateDict weights = HfFolder::open(folder_).weights();
  EXPECT_TRUE(weights.take("a", {1}).defined());
  EXPECT_TRUE(weights.take("b", {2}).defined());
  EXPECT_NO_THROW(weights.require_all_used());

  write_safetensors(folder_ / "two.safetensors", {{"a", at::ones({1})}, {"b", at::ones({2})}});
  expect_words(weights_fault(), {"'a' is in two shards", "one.safetensors", "two.safetensors"});
  fs::remove(folder_ / "two.safetensors");
  expect_words(weights_fault(), {"the shard 'two.safetensors' is missing"});
  put("model.safetensors.index.json", R"({"weight_map": {"a": "../one.safetensors"}})");
  expect_words(weights_fault(), {"not a plain file name"});
  put("model.safetensors.index.json", R"({"weight_map": {"c": "one.safetensors"}})");
  expect_words(weights_fault(), {"'c' is not in its shard 'one.safetensors'"});
}

}  // namespace
}  // namespace focus
