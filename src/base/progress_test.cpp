#include "base/progress.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace focus
