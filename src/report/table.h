#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/plan.h"
#include "report/recipe.h"

namespace focus {

/// A finished run, or one that failed.
struct RunResult {
  std::vector<nlohmann::json> lines;  ///< What it printed.
  std::filesystem::path folder;       ///< Its output.
  double seconds = 0;
  std::string program;  ///< Version and commit that ran it.
  std::string error;    ///< Why it failed; empty: it did not.
};

/// One figure of ours.
struct Cell {
  double value = 0;                 ///< Mean over repetitions.
  std::vector<double> repetitions;  ///< Each one's figure.
  bool repeated = false;            ///< Repetitions are runs of their own, not one run counted again.
  bool exact = false;               ///< A count.
  std::vector<double>
      samples;  ///< Figures of windows or items, means over repetitions; of a log column their logarithms.
  std::optional<double> low, high;  ///< Least and largest of several measurements.
  /// Standard error of `value`; NaN when nothing tells.
  double error = std::numeric_limits<double>::quiet_NaN();
};

struct TableRow {
  RecipeRow recipe;
  std::map<std::string, Cell> cells;  ///< By column; those that were measured.
  bool leaks = false;                 ///< A run of it reports that later tokens change earlier logits.
  std::string missing;                ///< Why a figure of ours is not there; empty otherwise.
  std::vector<std::string> runs;      ///< Keys of the runs its figures come from.

  /// Whether it can be the best of a column.
  bool ranked() const { return recipe.unranked.empty() && !leaks; }
};

enum class Verdict { kHeld, kNotHeld, kUnclear, kNotMeasured };

/// One comparison of a claim.
struct Comparison {
  std::string left, right;  ///< "k1.ppl", or a number.
  double left_value = 0, right_value = 0;
  /// left - right * times; of a log column ln(left / (right * times)).
  double difference = 0;
  double error = 0;  ///< Its standard error, NaN when nothing tells.
  double noise = 0;  ///< Two standard errors, more of those that few values tell: what the difference must exceed.
  Verdict verdict = Verdict::kNotMeasured;
};

struct JudgedClaim {
  RecipeClaim recipe;
  std::vector<Comparison> comparisons;
  Verdict verdict = Verdict::kNotMeasured;
  std::string reason;  ///< Why it is unclear or not measured, where that is no matter of figures.
};

struct Table {
  std::string name, title, source, about;
  std::vector<RecipeColumn> columns;
  std::vector<TableRow> rows;
  std::vector<JudgedClaim> claims;
  std::vector<RecipePlot> plots;

  /// Row with the best figure of ours among those that are ranked; null when the column is not ranked or fewer than two
  /// rows have one.
  const TableRow* best(const RecipeColumn& column) const;
};

/// Fills the recipe's table from the results of the plan's runs (nullopt: not run) and judges its claims at `scale`.
Table make_table(const Recipe& recipe, const std::vector<PlannedRow>& planned, const Plan& plan,
                 const std::vector<std::optional<RunResult>>& results, const std::string& scale);

/// "held", "not held", "unclear", "not measured".
const char* verdict_name(Verdict verdict);

}  // namespace focus
