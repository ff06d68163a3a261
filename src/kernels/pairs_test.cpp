#include "kernels/pairs.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace focus::kernels {
namespace {

std::vector<int32_t> keys(const ListIndex& index, int64_t list) {
  return {index.keys(list), index.keys(list) + index.key_count(list)};
}

std::vector<int32_t> queries(const ListIndex& index, int64_t list) {
  return {index.queries(list), index.queries(list) + index.query_count(list)};
}

TEST(ListIndex, SortsKeysAndInvertsProbes) {
  const std::vector<int32_t> groups = {2, 0, -1, 2, 0, 2};
  const std::vector<int32_t> probes = {2, 0, -1, 2, 2, 2, 9, 0};  // [4, 2]; list 2 twice, list 9 without keys
  const ListIndex index(groups.data(), 6, probes.data(), 4, 2);
  ASSERT_EQ(index.lists(), 3);
  EXPECT_EQ(keys(index, 0), (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(keys(index, 1), std::vector<int32_t>{});
  EXPECT_EQ(keys(index, 2), (std::vector<int32_t>{0, 3, 5}));
  EXPECT_EQ(queries(index, 0), (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(queries(index, 2), (std::vector<int32_t>{0, 1, 2}));
}

TEST(ListIndex, NothingAtAll) {
  const std::vector<int32_t> groups = {-1, -1};
  const ListIndex index(groups.data(), 2, nullptr, 2, 0);
  EXPECT_EQ(index.lists(), 0);
  EXPECT_EQ(ListIndex().lists(), 0);
}

TEST(ListIndex, RefusesIdsOutOfRange) {
  const std::vector<int32_t> good = {0, 1};
  const std::vector<int32_t> low = {0, -2};
  const std::vector<int32_t> high = {0, static_cast<int32_t>(kMaxLists)};
  EXPECT_THROW(ListIndex(low.data(), 2, good.data(), 2, 1), Error);
  EXPECT_THROW(ListIndex(high.data(), 2, good.data(), 2, 1), Error);
  EXPECT_THROW(ListIndex(good.data(), 2, high.data(), 2, 1), Error);
}

TEST(PairRule, RangesOfAList) {
  const std::vector<int32_t> list = {0, 2, 5, 6, 9};
  PairRule rule;
  rule.window = 3;
  const auto range = [&](int64_t i) { return rule.list_range(i, list.data(), list.data() + list.size()); };
  EXPECT_EQ(range(2), (std::pair<int64_t, int64_t>{0, 0}));
  EXPECT_EQ(range(9), (std::pair<int64_t, int64_t>{0, 3}));  // keys before position 6
  EXPECT_EQ(range(10), (std::pair<int64_t, int64_t>{0, 4}));
  rule.layer_window = 6;
  EXPECT_EQ(range(10), (std::pair<int64_t, int64_t>{2, 4}));  // positions from 5 on
}

}  // namespace
}  // namespace focus::kernels
