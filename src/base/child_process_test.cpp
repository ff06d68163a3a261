#include "base/child_process.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"

namespace focus {
namespace {

class Child : public ::testing::Test {
 protected:
  Child() {
    std::filesystem::create_directories(folder_);
    files_ = {.folder = folder_, .output = folder_ / "out", .error = folder_ / "err"};
  }
  ~Child() override { std::filesystem::remove_all(folder_); }
  ChildExit shell(
      const std::string& script, const std::function<void()>& tick = [] {}) const {
    return run_child({"/bin/sh", "-c", script}, files_, tick);
  }

  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() / "focus_child_process";
  ChildFiles files_;
};

TEST_F(Child, KeepsOutputAndStatus) {
  const ChildExit end = shell("pwd; echo wrong >&2; cat; exit 3");
  EXPECT_EQ(end.status, 3);
  EXPECT_EQ(read_file(files_.output), std::filesystem::canonical(folder_).string() + "\n");
  EXPECT_EQ(read_file(files_.error), "wrong\n");
}

TEST_F(Child, TellsSignalsAndWhatCannotBeRun) {
  const ChildExit end = shell("kill -9 $$");
  EXPECT_EQ(end.status, -1);
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(run_child({"/no/such/program"}, files_, [] {}).status, 127);
  EXPECT_THROW(
      run_child({"/bin/true"}, {.folder = folder_, .output = folder_ / "no/out", .error = folder_ / "err"}, [] {}),
      Error);
}

TEST_F(Child, PassesAnInterruptOnOnceAndWaits) {
  const InterruptGuard guard;
  int ticks = 0;
  const ChildExit end = shell("trap 'echo told; exit 5' INT; echo ready; while :; do sleep 0.02; done", [&] {
    if (++ticks == 1 || read_file(files_.output).empty()) return;
    if (!interrupted()) std::raise(SIGINT);
  });
  EXPECT_EQ(end.status, 5);
  EXPECT_EQ(read_file(files_.output), "ready\ntold\n");
}

}  // namespace
}  // namespace focus
