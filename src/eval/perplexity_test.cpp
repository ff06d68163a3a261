#include "eval/perplexity.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"

namespace focus {
namespace {

TEST(EvalWindows, DisjointWindowsLeaveOutTheirFirstToken) {
  const auto windows = eval_windows(10, 4, 4, 0);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].scored, 3);
  EXPECT_EQ(windows[1].begin, 4);
  EXPECT_EQ(windows[1].scored, 3);
  EXPECT_EQ(windows[2].length, 2);
  EXPECT_EQ(windows[2].scored, 1);
}

TEST(EvalWindows, ALastWindowOfOneTokenPredictsNothing) {
  EXPECT_EQ(eval_windows(9, 4, 4, 0).size(), 2u);
}

TEST(EvalWindows, OverlappingWindowsScoreOnlyWhatIsNew) {
  const auto windows = eval_windows(10, 6, 2, 0);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].scored, 5);
  EXPECT_EQ(windows[1].scored, 2);
  EXPECT_EQ(windows[2].scored, 2);
}

TEST(EvalWindows, LimitsTheirNumber) {
  EXPECT_EQ(eval_windows(1000, 10, 10, 3).size(), 3u);
}

TEST(EvalWindows, DoNotCrossDocuments) {
  const std::vector<std::vector<int32_t>> documents = {std::vector<int32_t>(5), {1}, std::vector<int32_t>(3)};
  const auto windows = eval_windows(documents, 4, 4, 0);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[0].scored, 3);
  EXPECT_EQ(windows[1].document, 2);
  EXPECT_EQ(windows[1].scored, 2);
  EXPECT_EQ(eval_windows(documents, 4, 4, 1).size(), 1u);
  EXPECT_THROW(eval_windows(std::vector<std::vector<int32_t>>{{1}}, 4, 4, 0), Error);
}

TEST(EvalWindows, RefusesBadArguments) {
  EXPECT_THROW(eval_windows(10, 1, 1, 0), UsageError);
  EXPECT_THROW(eval_windows(10, 4, 5, 0), UsageError);
  EXPECT_THROW(eval_windows(10, 4, 0, 0), UsageError);
  EXPECT_THROW(eval_windows(1, 4, 4, 0), Error);
}

RC_GTEST_PROP(EvalWindows, EveryTokenIsPredictedAtMostOnce, ()) {
  const int64_t tokens = *rc::gen::inRange<int64_t>(2, 200);
  const int64_t context = *rc::gen::inRange<int64_t>(2, 50);
  const int64_t stride = *rc::gen::inRange<int64_t>(1, context + 1);
  std::vector<int> seen(static_cast<size_t>(tokens), 0);
  for (const EvalWindow& w : eval_windows(tokens, context, stride, 0)) {
    RC_ASSERT(w.scored >= 1 && w.scored < w.length && w.begin + w.length <= tokens);
    for (int64_t p = w.begin + w.length - w.scored; p < w.begin + w.length; ++p) ++seen[static_cast<size_t>(p)];
  }
  RC_ASSERT(seen[0] == 0);
  for (int64_t p = 1; p < tokens; ++p) {
    // Disjoint windows skip the first token of each; any overlap predicts every token exactly once.
    RC_ASSERT(seen[static_cast<size_t>(p)] == (stride == context && p % stride == 0 ? 0 : 1));
  }
}

}  // namespace
}  // namespace focus
