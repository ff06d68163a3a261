#include "report/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/testing.h"

namespace focus {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ReportDocument document_of(Table table) {
  ReportDocument document;
  document.program = "0.1.0 (commit abc)";
  document.date = "2026-01-02";
  document.machine = "a machine";
  document.scale = "quick";
  document.tables.push_back(std::move(table));
  document.runs.push_back(
      {.key = "eval-1", .command = "focus eval", .seconds = 1.5, .program = "0.1.0 (commit old)", .error = ""});
  return document;
}

TEST(Document, TablesHoldBothColumnsAndBestRow) {
  const std::string text = markdown_tables(document_of(small_table()));
  EXPECT_THAT(text, HasSubstr("|            | PPL, paper |       PPL, ours | pairs, ours | remarks           |\n"));
  EXPECT_THAT(text, HasSubstr("| ---------- | ---------: | --------------: | ----------: | ----------------- |\n"));
  EXPECT_THAT(text,
              HasSubstr("| row a      |       4.25 | **5.00 \u00b1 0.76** |       50.0% |                   |\n"));
  EXPECT_THAT(text,
              HasSubstr("| row b      |            |     5.53 \u00b1 0.84 |             |                   |\n"));
  EXPECT_THAT(text, HasSubstr("| row absent |       3.00 |                 |             | needs --set x=... |\n"));
}

TEST(Document, RowsThatLeakAreNotRanked) {
  Table table = small_table();
  table.rows[0].leaks = true;
  EXPECT_EQ(table.best(table.columns[0]), nullptr);  // One row is no comparison.
  const std::string text = markdown_tables(document_of(table));
  EXPECT_THAT(text, HasSubstr("leaks: not ranked"));
  EXPECT_THAT(text, Not(HasSubstr("**5")));
  table.rows[0].leaks = false;
  table.rows[0].recipe.unranked = "looks | ahead";
  EXPECT_THAT(markdown_tables(document_of(table)), HasSubstr("looks \\| ahead: not ranked"));
}

TEST(Document, ClaimsSayTheirFigures) {
  Table table = small_table();
  RecipeClaim claim;
  claim.text = "a is lower";
  claim.paper = "1 against 2";
  claim.left = {.row = "a", .column = "ppl", .number = 0};
  claim.right = {{.row = "b", .column = "ppl", .number = 0}};
  table.claims.push_back(judge_claim(claim, table));
  EXPECT_THAT(markdown_tables(document_of(table)), HasSubstr("5.00 against 5.53: ratio 0.9048"));
  EXPECT_THAT(markdown_tables(document_of(table)), HasSubstr("**held**"));
}

TEST(Document, HeadSaysWhatAndWhere) {
  const std::string text = markdown_document(document_of(small_table()));
  for (const char* part : {"commit abc", "scale quick", "2026-01-02", "a machine", "1 repetition,",
                           "by 0.1.0 (commit old)", "`focus eval`"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Document, JsonHoldsWhatTheTablesShow) {
  const nlohmann::json json = document_json(document_of(small_table()));
  const auto& table = json["tables"][0];
  EXPECT_EQ(table["columns"][0]["best"], "a");
  EXPECT_EQ(table["rows"][0]["paper"]["ppl"], 4.25);
  EXPECT_NEAR(table["rows"][0]["ours"]["ppl"]["value"].get<double>(), 5.0, 1e-12);
  EXPECT_EQ(table["rows"][2]["ours"].size(), 0u);
  EXPECT_EQ(table["rows"][2]["missing"], "needs --set x=...");
}

}  // namespace
}  // namespace focus
