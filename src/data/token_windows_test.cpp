#include "data/token_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <numeric>
#include <set>

#include "base/error.h"

namespace focus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Document counting(int32_t first, int64_t length) {
  Document document(static_cast<size_t>(length));
  std::iota(document.begin(), document.end(), first);
  return document;
}

TEST(EvalWindows, FirstScoresAllButOneLaterOnesTheStride) {
  const std::vector<Document> documents = {counting(0, 10)};
  const auto windows = eval_windows(documents, 4, 2);
  ASSERT_EQ(windows.size(), 4u);
  EXPECT_EQ(windows[0].begin, 0);
  EXPECT_EQ(windows[0].end, 4);
  EXPECT_EQ(windows[0].scored, 3);
  EXPECT_EQ(windows[1].begin, 2);
  EXPECT_EQ(windows[1].scored, 2);
  EXPECT_EQ(windows[3].end, 10);
}

TEST(EvalWindows, DisjointWindowsLeaveOutTheirFirstToken) {
  const std::vector<Document> documents = {counting(0, 9)};
  const auto windows = eval_windows(documents, 4, 4);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[1].begin, 4);
  EXPECT_EQ(windows[1].scored, 3);
}

TEST(EvalWindows, ShortDocuments) {
  const std::vector<Document> documents = {{}, {1}, {1, 2}, counting(0, 4)};
  const auto windows = eval_windows(documents, 4, 3);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[0].document, 2);
  EXPECT_EQ(windows[0].scored, 1);
  EXPECT_EQ(windows[1].scored, 3);
  EXPECT_TRUE(eval_windows({}, 4, 3).empty());
}

TEST(EvalWindows, ArgumentsAreChecked) {
  EXPECT_THROW(eval_windows({}, 1, 1), UsageError);
  EXPECT_THROW(eval_windows({}, 8, 0), UsageError);
  EXPECT_THROW(eval_windows({}, 8, 9), UsageError);
}

TEST(EvalWindows, EveryTokenIsScoredOnceWithEnoughBefore) {
  EXPECT_TRUE(rc::check([] {
    const auto context = *rc::gen::inRange<int64_t>(2, 12);
    const auto stride = *rc::gen::inRange<int64_t>(1, context);
    const std::vector<Document> documents = {counting(0, *rc::gen::inRange<int64_t>(0, 60)),
                                             counting(0, *rc::gen::inRange<int64_t>(0, 60))};
    std::map<std::pair<int64_t, int64_t>, int> scored;
    for (const EvalWindow& window : eval_windows(documents, context, stride)) {
      RC_ASSERT(window.end - window.begin <= context);
      for (int64_t t = window.end - window.scored; t < window.end; ++t) {
        ++scored[{window.document, t}];
        RC_ASSERT(t > window.begin);
        if (window.begin > 0) RC_ASSERT(t - window.begin >= context - stride);
      }
    }
    int64_t expected = 0;
    for (const Document& document : documents)
      expected += std::max<int64_t>(static_cast<int64_t>(document.size()) - 1, 0);
    RC_ASSERT(static_cast<int64_t>(scored.size()) == expected);
    for (const auto& [token, times] : scored) RC_ASSERT(times == 1);
  }));
}

TEST(TrainWindows, EveryEpochHoldsEveryWindowOnceInAnotherOrder) {
  const std::vector<Document> documents = {counting(0, 805)};
  TrainWindows windows(documents, 10, 1, "books");
  ASSERT_EQ(windows.windows_per_epoch(), 80);
  std::vector<std::vector<int32_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(windows.epoch(), epoch);
    std::vector<int32_t> firsts;
    for (int i = 0; i < 80; ++i) {
      const auto window = windows.next();
      ASSERT_EQ(window.ids.size(), 10u);
      for (int32_t t = 0; t < 10; ++t) {
        ASSERT_EQ(window.ids[static_cast<size_t>(t)], window.ids[0] + t);
        ASSERT_EQ(window.document_start[static_cast<size_t>(t)], 0);
      }
      firsts.push_back(window.ids[0]);
    }
    EXPECT_EQ(std::set<int32_t>(firsts.begin(), firsts.end()).size(), 80u);
    orders.push_back(firsts);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  EXPECT_NE(TrainWindows(documents, 10, 2, "books").next().ids, TrainWindows(documents, 10, 1, "books").next().ids);
}

TEST(TrainWindows, SkippedWindowsAreThoseThatWouldHaveCome) {
  const std::vector<Document> documents = {counting(0, 85)};
  TrainWindows all(documents, 10, 3, "books"), some(documents, 10, 3, "books");
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < 21; ++i) expected.push_back(all.next().ids);
  for (int i = 1; i < 21; i += 3) {
    some.skip(1);
    EXPECT_EQ(some.next().ids, expected[i]);
    some.skip(1);
  }
  EXPECT_EQ(some.position(), 21);
  EXPECT_THROW(some.skip(-1), Error);
}

TEST(TrainWindows, OrderIsFixedByTheSeed) {
  const std::vector<Document> documents = {counting(0, 80)};
  TrainWindows windows(documents, 10, 7, "books");
  std::vector<int32_t> firsts;
  for (int i = 0; i < 8; ++i) firsts.push_back(windows.next().ids[0] / 10);
  // From a separate implementation of the same generator and shuffle.
  EXPECT_THAT(firsts, ElementsAre(3, 4, 7, 2, 0, 6, 1, 5));
}

TEST(TrainWindows, ShortDocumentsArePackedWithTheirStarts) {
  const std::vector<Document> documents = {counting(100, 3), counting(200, 6), counting(300, 2)};
  TrainWindows windows(documents, 5, 0, "books");
  ASSERT_EQ(windows.windows_per_epoch(), 2);
  std::map<std::vector<int32_t>, std::vector<int32_t>> seen;
  for (int i = 0; i < 2; ++i) {
    const auto window = windows.next();
    seen[window.ids] = window.document_start;
  }
  const std::map<std::vector<int32_t>, std::vector<int32_t>> expected = {
      {{200, 201, 202, 203, 204}, {0, 0, 0, 0, 0}},
      {{100, 101, 102, 205, 300}, {0, 0, 0, 3, 4}},
  };
  EXPECT_EQ(seen, expected);
}

TEST(TrainWindows, ARestThatCrossesAWindowStartsAnew) {
  const std::vector<Document> documents = {counting(100, 3), counting(200, 3), counting(300, 2)};
  TrainWindows windows(documents, 4, 0, "books");
  ASSERT_EQ(windows.windows_per_epoch(), 2);
  for (int i = 0; i < 2; ++i) {
    const auto window = windows.next();
    if (window.ids[0] == 201) {
      EXPECT_EQ(window.document_start, (std::vector<int32_t>{0, 0, 2, 2}));
    } else {
      EXPECT_EQ(window.document_start, (std::vector<int32_t>{0, 0, 0, 3}));
    }
  }
}

TEST(TrainWindows, RestoreGoesOnExactly) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Document> documents = {counting(0, 57), counting(500, 23)};
    const auto steps = *rc::gen::inRange(0, 40);
    TrainWindows first(documents, 5, 3, "books");
    for (int i = 0; i < steps; ++i) first.next();
    const auto state = nlohmann::json::parse(first.state().dump());
    TrainWindows second(documents, 5, 3, "books");
    second.restore(state);
    for (int i = 0; i < 30; ++i) {
      const auto a = first.next(), b = second.next();
      RC_ASSERT(a.ids == b.ids);
      RC_ASSERT(a.document_start == b.document_start);
    }
  }));
}

TEST(TrainWindows, RestoreRefusesOtherData) {
  const std::vector<Document> documents = {counting(0, 57)}, others = {counting(1, 57)};
  const auto state = TrainWindows(documents, 5, 3, "books").state();
  auto error = [&](TrainWindows windows, const nlohmann::json& saved) -> std::string {
    try {
      windows.restore(saved);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(error(TrainWindows(documents, 5, 3, "books"), state), "no error");
  EXPECT_THAT(error(TrainWindows(others, 5, 3, "books"), state), HasSubstr("data differs"));
  EXPECT_THAT(error(TrainWindows(documents, 5, 4, "books"), state), HasSubstr("seed differs: 3 when saved, 4 now"));
  EXPECT_THAT(error(TrainWindows(documents, 6, 3, "books"), state), HasSubstr("length differs: 5 when saved, 6 now"));
  EXPECT_THAT(error(TrainWindows(documents, 5, 3, "books"), nlohmann::json::object()), HasSubstr("differs"));
  auto broken = state;
  broken["position"] = -1;
  EXPECT_THAT(error(TrainWindows(documents, 5, 3, "books"), broken), HasSubstr("position"));
}

TEST(TrainWindows, TooLittleTextIsAnErrorWithBothNumbers) {
  const std::vector<Document> documents = {counting(0, 10)};
  try {
    TrainWindows windows(documents, 1024, 0, "a.txt");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "a.txt: 10 tokens of text, expected at least 1024");
  }
}

}  // namespace
}  // namespace focus
