#include "report/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace focus {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kGood = R"(title = "T"
source = "table 1"
[vars]
k = 3
tau = 0.5
[quick]
k = 1
[needs]
model = "a model"
[runs]
score = "eval --model {model}"
[seconds.quick]
score = 2
[[columns]]
key = "ppl"
title = "PPL"
value = "perplexity"
noise = "window_nll"
best = "low"
log = true
[[columns]]
key = "ms"
title = "ms"
value = "[method=focus].ms"
noise = "[method=focus].lo..[method=focus].hi"
[[rows]]
id = "a"
title = "A"
run = "score"
from = { ms = "score" }
set = { k = 2 }
paper = { ppl = 3 }
[[rows]]
id = "b"
title = "B"
paper = { ppl = 4.5 }
[[claims]]
text = "less"
left = "a.ppl"
is = "<"
right = ["b.ppl", 7]
times = 1.01
[[plots]]
title = "P"
x = "ms"
y = "ppl"
)";

std::string fault(const std::string& text) {
  try {
    parse_recipe(text, "t1", "t1.toml");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string replaced(const std::string& what, const std::string& with) {
  std::string text = kGood;
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

TEST(Recipe, ReadsEveryPart) {
  const Recipe recipe = parse_recipe(kGood, "t1", "t1.toml");
  EXPECT_EQ(recipe.name, "t1");
  EXPECT_EQ(recipe.variables.at("vars").at("k"), "3");
  EXPECT_EQ(recipe.variables.at("vars").at("tau"), "0.5");
  EXPECT_EQ(recipe.variables.at("quick").at("k"), "1");
  EXPECT_EQ(recipe.runs.at("score"), "eval --model {model}");
  EXPECT_EQ(recipe.seconds.at("quick").at("score"), 2);
  ASSERT_EQ(recipe.columns.size(), 2u);
  EXPECT_EQ(recipe.columns[0].noise.kind, NoiseSource::Kind::kSamples);
  EXPECT_EQ(recipe.columns[0].best, Better::kLow);
  EXPECT_TRUE(recipe.columns[0].log);
  EXPECT_EQ(recipe.columns[1].noise.kind, NoiseSource::Kind::kRange);
  EXPECT_EQ(recipe.columns[1].noise.high, "[method=focus].hi");
  EXPECT_EQ(recipe.rows[0].set.at("k"), "2");
  EXPECT_EQ(recipe.rows[1].paper.at("ppl"), 4.5);
  const RecipeClaim& claim = recipe.claims.at(0);
  EXPECT_EQ(claim.left.row + "/" + claim.left.column, "a/ppl");
  ASSERT_EQ(claim.right.size(), 2u);
  EXPECT_EQ(claim.right[1].number, 7);
  EXPECT_EQ(claim.times, 1.01);
  EXPECT_EQ(recipe.plots.at(0).x, "ms");
}

TEST(Recipe, FaultsAreOneLineWithFileAndLine) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"title = \"T\"\n", "", "title is missing"},
      {"title = \"T\"", "title = \"T", "line 1"},
      {"title = \"T\"", "title = 7", "line 1: title: expected a text"},
      {"best = \"low\"", "bets = \"low\"", "unknown key 'bets'; did you mean best?"},
      {"best = \"low\"", "best = \"least\"", "best: expected low or high"},
      {"key = \"ms\"", "key = \"ppl\"", "columns: 'ppl' stands there twice"},
      {"id = \"b\"", "id = \"a\"", "rows: 'a' stands there twice"},
      {"run = \"score\"", "run = \"scores\"", "no run 'scores'; runs: score"},
      {"from = { ms", "from = { mm", "no column 'mm'; columns: ppl, ms"},
      {"paper = { ppl = 4.5 }", "paper = { ppl = \"x\" }", "paper: ppl: expected a number"},
      {"paper = { ppl = 4.5 }\n", "", "expected a run, the paper's figures or both"},
      {"value = \"perplexity\"", "value = \"a..b\"", "value 'a..b'"},
      {"left = \"a.ppl\"", "left = \"a\"", "expected ROW.COLUMN"},
      {"left = \"a.ppl\"", "left = \"c.ppl\"", "no row 'c'"},
      {"is = \"<\"", "is = \"<=\"", "is '<='"},
      {"is = \"<\"", "is = \"~\"", "margin"},
      {"right = [\"b.ppl\", 7]", "right = []", "right"},
      {"x = \"ms\"", "x = \"mss\"", "plots: no column 'mss'"},
      {"[seconds.quick]\nscore", "[seconds.quick]\nscores", "seconds.quick: no run 'scores'"},
      {"[seconds.quick]", "[seconds.tiny]", "unknown key 'tiny'"},
      {"[quick]", "[quik]", "unknown key 'quik'; did you mean quick?"}};
  for (const auto& [what, with, expected] : cases) {
    const std::string message = fault(replaced(what, with));
    EXPECT_THAT(message, HasSubstr("t1.toml")) << with;
    EXPECT_THAT(message, HasSubstr(expected)) << with;
    EXPECT_THAT(message, Not(HasSubstr("\n"))) << with;
  }
}

TEST(Recipe, CommonVariables) {
  const CommonRecipe common =
      parse_common_recipe("[vars]\na = 1\n[full]\na = \"x y\"\n[needs]\nb = \"B\"\n", "common.toml");
  EXPECT_EQ(common.variables.at("vars").at("a"), "1");
  EXPECT_EQ(common.variables.at("full").at("a"), "x y");
  EXPECT_EQ(common.needs.at("b"), "B");
  EXPECT_THROW(parse_common_recipe("[runs]\na = \"b\"\n", "common.toml"), Error);
}

}  // namespace
}  // namespace focus
