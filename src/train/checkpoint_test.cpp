#include "train/checkpoint.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "train/metrics_log.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              fmt::format("focus-checkpoint-{}", ::testing::UnitTest::GetInstance()->random_seed());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Checkpoint at_step(int64_t step) {
    return {.step = step, .state = {{"data", {{"window", 3}}}}, .tensors = {{"layers.0.x", at::full({2}, step)}}};
  }

  fs::path folder_;
};

TEST_F(CheckpointTest, GivesBackWhatWasSaved) {
  save_checkpoint(folder_, at_step(7), 0);
  const Checkpoint loaded = load_checkpoint(*latest_checkpoint(folder_));
  EXPECT_EQ(loaded.step, 7);
  EXPECT_EQ(loaded.state["data"]["window"], 3);
  ASSERT_EQ(loaded.tensors.size(), 1u);
  EXPECT_EQ(loaded.tensors[0].first, "layers.0.x");
  EXPECT_TRUE(at::equal(loaded.tensors[0].second, at::full({2}, int64_t{7})));
}

TEST_F(CheckpointTest, TheNewestByNumberWinsAndOldOnesGo) {
  for (const int64_t step : {9, 10, 11}) save_checkpoint(folder_, at_step(step), 2);
  EXPECT_EQ(latest_checkpoint(folder_)->filename(), "checkpoint-11");
  EXPECT_FALSE(fs::exists(folder_ / "checkpoint-9"));
  EXPECT_TRUE(fs::exists(folder_ / "checkpoint-10"));
}

TEST_F(CheckpointTest, IncompleteFoldersAndOtherNamesDoNotCount) {
  fs::create_directories(folder_ / "checkpoint-5");
  fs::create_directories(folder_ / "checkpoint-abc");
  EXPECT_FALSE(latest_checkpoint(folder_).has_value());
  EXPECT_FALSE(latest_checkpoint(folder_ / "nowhere").has_value());
}

TEST_F(CheckpointTest, DamageIsNamed) {
  save_checkpoint(folder_, at_step(1), 0);
  const fs::path state = folder_ / "checkpoint-1" / "trainer_state.json";
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"{", "not valid JSON at byte 1"},
           {"[]", "not a JSON object"},
           {R"({"step": 1, "format_version": 99})", "format version 99"},
           {R"({"step": "x", "format_version": 1})", "\"step\" is \"x\", expected an integer"},
           {R"({"step": 1.5, "format_version": 1})", "\"step\" is 1.5, expected an integer"},
           {R"({"format_version": 1})", "\"step\" is missing"},
           {R"({"step": 1, "format_version": 1, "data": 3})", "\"data\" is not an object"},
           {R"({"step": 1, "format_version": 1, "identity": []})", "\"identity\" is not an object"},
           {R"({"step": 1, "format_version": 1, "x": )" + std::string(200, '[') + std::string(200, ']') + "}",
            "levels"}}) {
    write_file_atomically(state, text);
    try {
      load_checkpoint(folder_ / "checkpoint-1");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      const std::string what = e.what();
      EXPECT_NE(what.find("trainer_state.json"), std::string::npos) << what;
      EXPECT_NE(what.find(words), std::string::npos) << what;
      EXPECT_EQ(what.find("exception"), std::string::npos) << what;
    }
  }
}

TEST_F(CheckpointTest, MetricsAreCutBackToTheResumedStep) {
  const fs::path file = folder_ / "metrics.jsonl";
  {
    MetricsLog log(file, 0);
    for (int step = 1; step <= 4; ++step) log.write({{"step", step}});
  }
  std::ofstream(file, std::ios::app) << "{\"step\": 5, \"lo";
  { MetricsLog(file, 2).write({{"step", 3}, {"again", true}}); }
  EXPECT_EQ(read_file(file), "{\"step\":1}\n{\"step\":2}\n{\"again\":true,\"step\":3}\n");
  { MetricsLog fresh(file, 0); }
  EXPECT_EQ(read_file(file), "");
}

}  // namespace
}  // namespace focus
