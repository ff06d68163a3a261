#include "base/ranges.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace focus {
namespace {

using Numbers = std::vector<int64_t>;

TEST(Ranges, NumbersAndRangesInOrderAndOnce) {
  EXPECT_EQ(parse_ranges("layers", "4-7", 30), (Numbers{4, 5, 6, 7}));
  EXPECT_EQ(parse_ranges("layers", "9,0-2,1-3,9", 10), (Numbers{0, 1, 2, 3, 9}));
  EXPECT_EQ(parse_ranges("layers", "5-5", 6), (Numbers{5}));
}

TEST(Ranges, RefuseWhatIsNone) {
  for (const char* text :
       {"", ",", "1,", "a", "-1", "1-", "1-2-3", "1 - 2", "3-1", "10", "0-10", "99999999999999999999"}) {
    EXPECT_THROW(parse_ranges("layers", text, 10), UsageError) << text;
  }
}

}  // namespace
}  // namespace focus
