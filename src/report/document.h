#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/table.h"

namespace focus {

/// One command of the report.
struct ReportedRun {
  std::string key, command;
  double seconds = 0;
  std::string program;  ///< That ran it.
  std::string error;
};

/// All tables of one call of `focus reproduce`.
struct ReportDocument {
  std::string program, date, machine, scale;  ///< The program as "0.1.0 (commit ...)".
  int64_t repetitions = 1;
  TextMap given;  ///< Variables set by the user.
  std::vector<Table> tables;
  std::vector<ReportedRun> runs;  ///< Those that finished or failed, in their order.
};

/// "6.06 ± 0.03" by the column's digits (± one standard error, where it is known and not 0); percent figures times 100
/// with %.
std::string format_cell(const Cell& cell, const RecipeColumn& column);
std::string format_figure(double value, const RecipeColumn& column);

/// A claim's figures: "6.06 against 6.17: ratio 0.982 ± 0.002; ...". Empty when nothing was measured.
std::string format_claim(const JudgedClaim& claim, const Table& table);

/// Tables and claims as Markdown whose columns are aligned, so that it can be read as it is; without the head and the
/// commands.
std::string markdown_tables(const ReportDocument& document);

/// results.md: the head, the tables, and the commands.
std::string markdown_document(const ReportDocument& document);

/// results.json (docs/formats.md).
nlohmann::json document_json(const ReportDocument& document);

}  // namespace focus
