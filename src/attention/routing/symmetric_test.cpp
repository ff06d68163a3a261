#include "attention/routing/symmetric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace focus {
namespace {

bool share(std::span<const int32_t> x, std::span<const int32_t> y) {
  return std::any_of(x.begin(), x.end(), [&](int32_t g) { return std::find(y.begin(), y.end(), g) != y.end(); });
}

TEST(PatternTable, SharesAGroupExactlyWithWhatItProbes) {
  for (int64_t groups = 1; groups <= 9; ++groups) {
    for (int64_t k = 1; k <= groups; ++k) {
      const PatternTable table(groups, k);
      EXPECT_EQ(table.patterns(), count_patterns(groups, k));
      std::set<std::vector<int32_t>> seen;
      for (int64_t p = 0; p < table.patterns(); ++p) {
        const auto mine = table.members(p);
        EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
        std::vector<int32_t> reversed(mine.rbegin(), mine.rend());
        EXPECT_EQ(table.rank(reversed), p);
        seen.emplace(mine.begin(), mine.end());
        const auto probed = table.sharing(p);
        for (int64_t q = 0; q < table.patterns(); ++q) {
          const bool probes = std::find(probed.begin(), probed.end(), q) != probed.end();
          ASSERT_EQ(probes, share(mine, table.members(q))) << groups << " groups, " << k << " a token";
        }
      }
      EXPECT_EQ(static_cast<int64_t>(seen.size()), table.patterns());
    }
  }
}

TEST(PatternTable, KnownSizes) {
  EXPECT_EQ(PatternTable(8, 2).patterns(), 28);
  EXPECT_EQ(PatternTable(8, 2).probes(), 13);
  EXPECT_EQ(PatternTable(4095, 1).probes(), 1);
  EXPECT_THROW(PatternTable(92, 2), UsageError);
  EXPECT_THROW(PatternTable(4095, 2000), UsageError);
}

}  // namespace
}  // namespace focus
