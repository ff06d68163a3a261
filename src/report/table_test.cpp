#include "report/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "report/figures.h"

namespace focus {
namespace {

using ::testing::HasSubstr;

const std::string kRecipe = R"(title = "T"
source = "table 1"
[runs]
score = "eval --k {k}"
[[columns]]
key = "ppl"
title = "PPL"
value = "nll"
noise = "window_nll@window_tokens"
[[rows]]
id = "one"
title = "one"
run = "score"
set = { k = 1 }
[[rows]]
id = "two"
title = "two"
run = "score"
set = { k = 2 }
)";

class Filling : public ::testing::Test {
 protected:
  Filling() {
    settings_.scale = "quick";
    settings_.runs = "/runs";
    settings_.fingerprint = [](const std::filesystem::path&) { return ""; };
  }
  /// What the two runs printed.
  Table filled(const std::string& one, const std::string& two) const {
    const Recipe recipe = parse_recipe(kRecipe, "t1", "t1.toml");
    const Plan plan = make_plan({recipe}, settings_);
    std::vector<std::optional<RunResult>> results;
    for (const std::string& text : {one, two}) {
      RunResult result;
      result.lines = parse_json_lines(text, "output");
      results.emplace_back(std::move(result));
    }
    return make_table(recipe, plan.rows.front(), plan, results, "quick");
  }

  PlanSettings settings_;
};

TEST_F(Filling, WindowsOfUnequalLengthAreWeighted) {
  const Table table = filled(R"({"nll": 1.25, "window_nll": [1, 2], "window_tokens": [30, 10]})",
                             R"({"nll": 2, "window_nll": [1, 3], "window_tokens": [20, 20]})");
  const auto& samples = table.rows[0].cells.at("ppl").samples;
  ASSERT_EQ(samples.size(), 2u);  // Their mean is the figure.
  EXPECT_NEAR((samples[0] + samples[1]) / 2, 1.25, 1e-12);
  EXPECT_NEAR(samples[0], 1.25 + 2 * 0.75 * (1 - 1.25), 1e-12);
  EXPECT_EQ(table.rows[1].cells.at("ppl").samples, (std::vector<double>{1, 3}));
}

TEST_F(Filling, SaysWhatIsNotThere) {
  ::testing::internal::CaptureStderr();
  const Table table = filled(R"({"perplexity": 3})", R"({"nll": 2, "window_nll": [1, 3]})");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(table.rows[0].cells.empty());
  EXPECT_THAT(table.rows[0].missing, HasSubstr("no nll in what eval-"));
  EXPECT_EQ(table.rows[1].cells.at("ppl").value, 2);
  EXPECT_TRUE(table.rows[1].cells.at("ppl").samples.empty());
  EXPECT_TRUE(std::isnan(table.rows[1].cells.at("ppl").error));
  EXPECT_THAT(log, HasSubstr("row 'two', column 'ppl': the noise is unknown: window_nll"));
}

}  // namespace
}  // namespace focus
