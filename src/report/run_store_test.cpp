#include "report/run_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

class Store : public ::testing::Test {
 protected:
  Store() {
    fs::remove_all(folder_);
    run_.key = "train-1";
    run_.folder = folder_ / run_.key;
    run_.arguments = {"train"};
  }
  ~Store() override { fs::remove_all(folder_); }
  void write(const fs::path& file, const std::string& text) const { std::ofstream(file) << text; }

  const fs::path folder_ = fs::temp_directory_path() / "focus_run_store";
  PlannedRun run_;
  const RunStore store_{"1 (commit a)", false};
};

TEST_F(Store, FindsOnlyWhatFinished) {
  EXPECT_EQ(store_.find(run_), std::nullopt);
  EXPECT_FALSE(store_.begin(run_));
  write(RunStore::output(run_), "{\"a\": 1}\n{\"a\": 2}\n");
  EXPECT_EQ(store_.find(run_), std::nullopt);
  store_.finish(run_, 1.5);
  const auto found = store_.find(run_);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->lines.size(), 2u);
  EXPECT_EQ(found->seconds, 1.5);
  EXPECT_EQ(found->program, "1 (commit a)");
}

TEST_F(Store, RunsOfAnotherProgramCountOnRequestOnly) {
  store_.begin(run_);
  write(RunStore::output(run_), "{}\n");
  store_.finish(run_, 1);
  EXPECT_EQ(RunStore("1 (commit b)", false).find(run_), std::nullopt);
  EXPECT_EQ(RunStore("1 (commit b)", true).find(run_)->program, "1 (commit a)");
}

TEST_F(Store, DamagedFoldersCountAsNone) {
  store_.begin(run_);
  write(RunStore::output(run_), "{}\n");
  store_.finish(run_, 1);
  write(RunStore::output(run_), "{\"a\": \n");
  EXPECT_EQ(store_.find(run_), std::nullopt);
  write(RunStore::output(run_), "{}\n");
  EXPECT_TRUE(store_.find(run_).has_value());
  write(run_.folder / "run.json", "{\"key\"");
  EXPECT_EQ(store_.find(run_), std::nullopt);
  write(RunStore::output(run_), "no JSON\n");
  EXPECT_THROW(store_.finish(run_, 1), Error);
  write(RunStore::output(run_), "");
  EXPECT_THROW(store_.finish(run_, 1), Error);
}

TEST_F(Store, AnInterruptedTrainingGoesOn) {
  store_.begin(run_);
  write(run_.folder / "left-over", "x");
  EXPECT_FALSE(store_.begin(run_));  // Nothing to go on from: begins anew.
  EXPECT_FALSE(fs::exists(run_.folder / "left-over"));
  fs::create_directories(run_.folder / "checkpoint-3");
  EXPECT_TRUE(store_.begin(run_));
  EXPECT_FALSE(RunStore("1 (commit b)", false).begin(run_));
  EXPECT_FALSE(fs::exists(run_.folder / "checkpoint-3"));
}

TEST_F(Store, AFirstPhaseCountsToo) {
  store_.begin(run_);
  fs::create_directories(run_.folder / "centroids" / "checkpoint-3");
  EXPECT_TRUE(store_.begin(run_));
  fs::remove(run_.folder / "centroids" / "checkpoint-3");
  EXPECT_FALSE(store_.begin(run_));
  fs::create_directories(run_.folder / "centroids" / "adapter");
  EXPECT_TRUE(store_.begin(run_));
}

TEST_F(Store, SecondsOfAllCallsCount) {
  store_.begin(run_);
  EXPECT_EQ(store_.seconds_so_far(run_), 0);
  fs::create_directories(run_.folder / "checkpoint-3");
  store_.pause(run_, 12.5);
  EXPECT_EQ(store_.find(run_), std::nullopt);
  EXPECT_TRUE(store_.begin(run_));
  EXPECT_EQ(store_.seconds_so_far(run_), 12.5);
  fs::remove(run_.folder / "checkpoint-3");
  EXPECT_FALSE(store_.begin(run_));  // Begun anew.
  EXPECT_EQ(store_.seconds_so_far(run_), 0);
}

TEST_F(Store, KeepsArgumentsThatAreNoUtf8) {
  run_.arguments = {"eval", "--data",
                    "b\xfc"
                    "cher"};
  store_.begin(run_);
  write(RunStore::output(run_), "{}\n");
  store_.finish(run_, 1);
  EXPECT_TRUE(store_.find(run_).has_value());
}

TEST_F(Store, TellsTheLastError) {
  store_.begin(run_);
  EXPECT_EQ(store_.last_error(run_), "");
  write(RunStore::log(run_), "model loaded\nfocus: error: one\nfocus: error: two\nthe end\n");
  EXPECT_EQ(store_.last_error(run_), "two");
}

}  // namespace
}  // namespace focus
