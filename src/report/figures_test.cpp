#include "report/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace focus {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

const std::vector<nlohmann::json> kLines = parse_json_lines(
    R"({"step": 1, "loss": 3.5, "method": "full"}

{"step": 2, "loss": 3.0, "method": "full", "ratio_to": {"sdpa": 1.5}}
{"perplexity": 5.5, "leaks": true, "none": null, "tasks": {"arc-easy": {"acc": 0.25}}, "dominance": [0.1, 0.4, 0.1], "mixed": [1, "a"]}
)",
    "lines");

TEST(Figures, ReadsMembersOfTheLastLine) {
  EXPECT_THAT(read_figure(kLines, "perplexity"), Optional(5.5));
  EXPECT_THAT(read_figure(kLines, "tasks.arc-easy.acc"), Optional(0.25));
  EXPECT_THAT(read_figure(kLines, "dominance.1"), Optional(0.4));
  EXPECT_THAT(read_figure(kLines, "leaks"), Optional(1.0));
  for (const char* absent :
       {"loss", "none", "tasks", "tasks.arc-easy.f1", "dominance.3", "dominance.x", "perplexity.0"}) {
    EXPECT_EQ(read_figure(kLines, absent), std::nullopt) << absent;
  }
}

TEST(Figures, ReducesArrays) {
  EXPECT_THAT(read_figure(kLines, "dominance|max"), Optional(0.4));
  EXPECT_THAT(read_figure(kLines, "dominance|min"), Optional(0.1));
  EXPECT_THAT(read_figure(kLines, "dominance|mean"), Optional(::testing::DoubleEq(0.2)));
  EXPECT_THAT(read_figure(kLines, "dominance|last"), Optional(0.1));
  EXPECT_EQ(read_figure(kLines, "mixed|max"), std::nullopt);
  EXPECT_EQ(read_figure(kLines, "perplexity|max"), std::nullopt);
}

TEST(Figures, PicksTheLastLineThatFits) {
  EXPECT_THAT(read_figure(kLines, "[method=full].loss"), Optional(3.0));
  EXPECT_THAT(read_figure(kLines, "[method=full,step=1].loss"), Optional(3.5));
  EXPECT_THAT(read_figure(kLines, "[step=2.0].ratio_to.sdpa"), Optional(1.5));
  EXPECT_EQ(read_figure(kLines, "[method=focus].loss"), std::nullopt);
}

TEST(Figures, ReadsSamplesAndItems) {
  EXPECT_THAT(read_samples(kLines, "dominance"), Optional(ElementsAre(0.1, 0.4, 0.1)));
  EXPECT_EQ(read_samples(kLines, "mixed"), std::nullopt);
  const auto items = parse_json_lines("{\"acc\": true, \"n\": 1}\n{\"acc\": false}\n", "items");
  EXPECT_THAT(read_items(items, "acc"), Optional(ElementsAre(1, 0)));
  EXPECT_EQ(read_items(items, "n"), std::nullopt);
}

TEST(Figures, FaultsNameTheLine) {
  try {
    parse_json_lines("{}\n\n{\"a\": }\n", "items.jsonl");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("items.jsonl, line 3"));
  }
  EXPECT_THROW(parse_json_lines(std::string(200, '['), "deep"), Error);
}

TEST(Figures, RefusesPathsWithAFault) {
  for (const char* path : {"", "a..b", ".a", "a|median", "[a=b]", "[a].b", "[=1].b", "[a=b.c"}) {
    EXPECT_NE(figure_path_fault(path), "") << path;
    EXPECT_THROW(read_figure(kLines, path), Error) << path;
  }
  EXPECT_EQ(figure_path_fault("[a=b,c=1].d.0|max"), "");
}

}  // namespace
}  // namespace focus
