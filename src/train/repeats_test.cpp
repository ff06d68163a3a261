#include "train/repeats.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

namespace focus {
namespace {

RC_GTEST_PROP(Repeats, TheEndRepeatsAnEarlierPassageWithoutOverlap, ()) {
  const int64_t length = *rc::gen::inRange<int64_t>(16, 2000);
  std::vector<int32_t> ids(static_cast<size_t>(length));
  std::iota(ids.begin(), ids.end(), 0);
  repeat_passage(ids, *rc::gen::inRange<int64_t>(0, 100), *rc::gen::inRange<int64_t>(0, 100));
  int64_t first_changed = 0;
  while (first_changed < length && ids[static_cast<size_t>(first_changed)] == first_changed) ++first_changed;
  const int64_t passage = length - first_changed;
  RC_ASSERT(passage >= length / 8 && passage <= 3 * length / 10 + 1);
  const int64_t lag = first_changed - ids[static_cast<size_t>(first_changed)];
  RC_ASSERT(lag >= passage);
  for (int64_t i = first_changed; i < length; ++i) RC_ASSERT(ids[static_cast<size_t>(i)] == i - lag);
}

TEST(Repeats, AreSpreadEvenly) {
  int taken = 0;
  for (int64_t i = 0; i < 100; ++i) taken += takes_repeat(i, 0.34) ? 1 : 0;
  EXPECT_EQ(taken, 34);
  EXPECT_FALSE(takes_repeat(5, 0));
  EXPECT_TRUE(takes_repeat(5, 1));
}

}  // namespace
}  // namespace focus
