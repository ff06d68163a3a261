#include "base/error.h"

#include <gtest/gtest.h>

namespace focus {
namespace {

TEST(Error, FormatsItsMessage) {
  try {
    fail("{}: {} bytes, expected {}", "a.bin", 3, 8);
    FAIL() << "fail() returned";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "a.bin: 3 bytes, expected 8");
  }
}

TEST(Error, RequireThrowsOnlyWhenFalse) {
  EXPECT_NO_THROW(require(true, "never"));
  EXPECT_THROW(require(false, "always"), Error);
}

TEST(Error, NearestNameFindsTypingSlips) {
  const std::vector<std::string> names = {"max-steps", "model", "groups", "groups-per-token"};
  EXPECT_EQ(nearest_name("max-step", names), "max-steps");
  EXPECT_EQ(nearest_name("modle", names), "model");
  EXPECT_EQ(nearest_name("group", names), "groups");
  EXPECT_EQ(nearest_name("zzzzzzzz", names), "");
}

}  // namespace
}  // namespace focus
