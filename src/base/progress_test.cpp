#include "base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/log.h"

namespace focus {
namespace {

TEST(Progress, Durations) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(-3), "0:00");
  EXPECT_EQ(format_duration(7.4), "0:07");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(3723), "1:02:03");
}

TEST(Progress, TextHasRateAndTimeLeft) {
  EXPECT_EQ(Progress::text("train", 30, 100, 0, 12, "steps", "loss 2.31"),
            "train 30/100 steps, 2.5 steps/s, 0:28 left, loss 2.31");
  EXPECT_EQ(Progress::text("eval", 0, 10, 0, 5, "windows", ""), "eval 0/10 windows");
  EXPECT_EQ(Progress::text("eval", 10, 10, 0, 40, "windows", ""), "eval 10/10 windows, 0.25 windows/s");
  EXPECT_EQ(Progress::text("read", 5000, 0, 0, 10, "lines", ""), "read 5000 lines, 500 lines/s");
}

TEST(Progress, ResumedWorkDoesNotCountForTheRate) {
  EXPECT_EQ(Progress::text("train", 60, 100, 50, 10, "steps", ""), "train 60/100 steps, 1.0 steps/s, 0:40 left");
}

TEST(Progress, SilentBetweenIntervals) {
  testing::internal::CaptureStderr();
  {
    Progress progress("work", 1000, "items");
    for (int i = 0; i < 1000; ++i) progress.advance();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

/// What a terminal of 40 columns gets from this program when it runs the given disabled test.
std::string shown_on_terminal(const std::string& test) {
  winsize size{};
  size.ws_row = 10;
  size.ws_col = 40;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    setenv("TERM", "xterm", 1);
    const std::string filter = "--gtest_filter=" + test;
    execl("/proc/self/exe", "base_test", "--gtest_also_run_disabled_tests", "--gtest_brief=1", filter.c_str(), nullptr);
    _exit(127);
  }
  std::string shown;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(terminal, buffer, sizeof(buffer))) > 0;) {
    shown.append(buffer, static_cast<size_t>(count));
  }
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << shown;
  return shown;
}

void work(const std::string& label) {
  Progress progress(label, 4, "items");
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(110));
    progress.advance();
  }
  log_info("a line between");
}

TEST(Progress, DISABLED_Works) {
  work("work");
}

TEST(Progress, DISABLED_WorksWithALongLabel) {
  work(std::string(100, 'x'));
}

TEST(Progress, DISABLED_WorksQuietly) {
  set_log_level(LogLevel::kWarning);
  work("work");
}

TEST(Progress, TerminalLineIsRedrawnAndRemoved) {
  const std::string shown = shown_on_terminal("Progress.DISABLED_Works");
  const size_t drawn = shown.find("\r\x1b[Kwork 1/4 items, ");
  const size_t line = shown.find("\r\x1b[Ka line between\r\n\r\x1b[Kwork 3/4 items");
  EXPECT_NE(drawn, std::string::npos) << shown;
  EXPECT_NE(line, std::string::npos) << shown;
  EXPECT_GT(shown.rfind("\r\x1b[K"), shown.rfind("work 3/4")) << shown;
}

TEST(Progress, TerminalLineIsCutToTheWidth) {
  const std::string shown = shown_on_terminal("Progress.DISABLED_WorksWithALongLabel");
  EXPECT_THAT(shown, testing::HasSubstr("\x1b[K" + std::string(39, 'x') + "\r"));
}

TEST(Progress, NothingOnAQuietTerminal) {
  EXPECT_THAT(shown_on_terminal("Progress.DISABLED_WorksQuietly"), testing::Not(testing::HasSubstr("\x1b[K")));
}

}  // namespace
}  // namespace focus
