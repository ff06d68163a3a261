#include "inspect/list_stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace focus {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr auto kA = TokenClass::kPunctuation, kB = TokenClass::kOther;

TEST(ListStats, CountsWhatIsInEachList) {
  const std::vector<int16_t> lists = {1, 1, -1, 1, 3, 1, 1, 3, 1, 1};
  const std::vector<int32_t> tokens = {5, 5, 9, 7, 7, 5, 2, 8, 5, 2};
  const std::vector<TokenClass> classes = {kA, kA, kA, kB, kB, kA, kB, kB, kA, kB};
  const std::vector<ListStats> stats = list_stats(lists, tokens, classes, 5, 2);
  ASSERT_EQ(stats.size(), 5u);
  EXPECT_EQ(stats[1].size, 7);
  EXPECT_EQ(stats[1].majority, kA);
  EXPECT_DOUBLE_EQ(stats[1].purity, 4.0 / 7);
  EXPECT_THAT(stats[1].top, ElementsAre(Pair(5, 4), Pair(2, 2)));
  // Entropy of the counts 4, 2, 1 of 7.
  EXPECT_NEAR(stats[1].token_entropy, 1.3787834934861753, 1e-12);
  EXPECT_EQ(stats[3].size, 2);
  EXPECT_DOUBLE_EQ(stats[3].purity, 1);
  EXPECT_DOUBLE_EQ(stats[3].token_entropy, 1);
  for (const size_t empty : {0u, 2u, 4u}) EXPECT_EQ(stats[empty].size, 0);
  const MeanStats mean = mean_stats(stats);
  EXPECT_EQ(mean.tokens, 9);
  EXPECT_DOUBLE_EQ(mean.purity, 6.0 / 9);
}

TEST(ListStats, RefusesWhatDoesNotFit) {
  const std::vector<int16_t> lists = {1, 4};
  const std::vector<int32_t> tokens = {5, 5};
  const std::vector<TokenClass> classes = {kA, kB};
  EXPECT_THROW(list_stats(lists, tokens, classes, 4, 1), Error);
  EXPECT_THROW(list_stats(lists, std::vector<int32_t>{1}, classes, 5, 1), Error);
  EXPECT_EQ(mean_stats({}).purity, 0);
}

TEST(ListAgreement, IsOneForRenamedListsAndZeroForIndependentOnes) {
  const std::vector<int16_t> a = {0, 0, 1, 1, 2, 2, -1}, renamed = {7, 7, 3, 3, 0, 0, 1};
  EXPECT_DOUBLE_EQ(list_agreement(a, renamed), 1);
  const std::vector<int16_t> rows = {0, 0, 1, 1}, columns = {0, 1, 0, 1};
  EXPECT_NEAR(list_agreement(rows, columns), 0, 1e-12);
  // Counts [[2, 1], [0, 1]]: H(A) = 0.8112781, H(B) = 1, I = 0.3112781.
  EXPECT_NEAR(list_agreement(std::vector<int16_t>{0, 0, 0, 1}, std::vector<int16_t>{0, 0, 1, 1}),
              2 * 0.31127812445913283 / (1 + 0.8112781244591328), 1e-12);
  EXPECT_EQ(list_agreement(std::vector<int16_t>{1, 1}, std::vector<int16_t>{2, 2}), 0);
  EXPECT_EQ(list_agreement(std::vector<int16_t>{-1}, std::vector<int16_t>{2}), 0);
}

RC_GTEST_PROP(ListAgreement, IsSymmetricAndWithinBounds, ()) {
  const auto n = *rc::gen::inRange<size_t>(1, 60);
  const auto draw = [&] { return *rc::gen::container<std::vector<int16_t>>(n, rc::gen::inRange<int16_t>(-1, 5)); };
  const std::vector<int16_t> a = draw(), b = draw();
  const double agreement = list_agreement(a, b);
  RC_ASSERT(agreement >= 0 && agreement <= 1);
  RC_ASSERT(std::abs(agreement - list_agreement(b, a)) < 1e-9);
}

}  // namespace
}  // namespace focus
