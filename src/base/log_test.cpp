#include "base/log.h"

#include <gtest/gtest.h>

namespace focus {
namespace {

std::string logged(LogLevel level) {
  set_log_level(level);
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  log_debug("d{}", 1);
  log_info("i{}", 2);
  log_warning("{}", "{braces}");
  draw_status_line("never on a file");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  set_log_level(LogLevel::kInfo);
  return testing::internal::GetCapturedStderr();
}

TEST(Log, LevelsFilterAndGoToStandardError) {
  EXPECT_EQ(logged(LogLevel::kDebug), "focus: debug: d1\ni2\nfocus: warning: {braces}\n");
  EXPECT_EQ(logged(LogLevel::kInfo), "i2\nfocus: warning: {braces}\n");
  EXPECT_EQ(logged(LogLevel::kWarning), "focus: warning: {braces}\n");
  EXPECT_EQ(logged(LogLevel::kOff), "");
}

}  // namespace
}  // namespace focus
