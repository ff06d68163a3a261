#include "report/judging.h"

#include <algorithm>

#include "base/error.h"
#include "eval/statistics.h"

namespace focus {

namespace {

constexpr double kErrors = 2;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// Square root of the sum of squares of those that are known; NaN when none is.
double join_errors(std::initializer_list<double> errors) {
  double squares = 0;
  bool known = false;
  for (const double error : errors) {
    if (std::isnan(error)) continue;
    known = true;
    squares += error * error;
  }
  return known ? std::sqrt(squares) : kUnknown;
}

double as_compared(double value, bool log) {
  return log ? std::log(value) : value;
}

double repetition_error(const Cell& cell, bool log) {
  if (!cell.repeated) return kUnknown;
  std::vector<double> values;
  for (const double value : cell.repetitions) values.push_back(as_compared(value, log));
  return mean_error(values).error;
}

double sample_error(const Cell& cell) {
  return cell.samples.size() < 2 ? kUnknown : mean_error(cell.samples).error;
}

double range_error(const Cell& cell, bool log) {
  if (!cell.low || !cell.high) return kUnknown;
  return (as_compared(*cell.high, log) - as_compared(*cell.low, log)) / (2 * kErrors);
}

double paired_repetitions(const Cell& left, const Cell& right, double times, bool log) {
  if (!left.repeated && !right.repeated) return kUnknown;
  if (left.repetitions.size() != right.repetitions.size()) {
    return join_errors({repetition_error(left, log), times * repetition_error(right, log)});
  }
  std::vector<double> differences;
  for (size_t i = 0; i < left.repetitions.size(); ++i) {
    const double scaled = log ? std::log(right.repetitions[i]) : times * right.repetitions[i];
    differences.push_back(as_compared(left.repetitions[i], log) - scaled);
  }
  return mean_error(differences).error;
}

double paired_samples(const Cell& left, const Cell& right, double times, bool log) {
  const double factor = log ? 1 : times;
  if (left.samples.size() != right.samples.size() || left.samples.size() < 2) {
    const double a = sample_error(left), b = sample_error(right);
    if (left.exact || right.exact) return join_errors({a, factor * b});
    return std::isnan(a) || std::isnan(b) ? kUnknown : join_errors({a, factor * b});
  }
  std::vector<double> differences;
  for (size_t i = 0; i < left.samples.size(); ++i) differences.push_back(left.samples[i] - factor * right.samples[i]);
  return mean_error(differences).error;
}

const TableRow& row_of(const Table& table, const std::string& id) {
  const auto found =
      std::find_if(table.rows.begin(), table.rows.end(), [&](const TableRow& r) { return r.recipe.id == id; });
  require(found != table.rows.end(), "{}: no row '{}'", table.name, id);
  return *found;
}

const RecipeColumn& column_of(const Table& table, const std::string& key) {
  const auto found =
      std::find_if(table.columns.begin(), table.columns.end(), [&](const auto& c) { return c.key == key; });
  require(found != table.columns.end(), "{}: no column '{}'", table.name, key);
  return *found;
}

const Cell* cell_of(const Table& table, const ClaimTerm& term) {
  const TableRow& row = row_of(table, term.row);
  const auto found = row.cells.find(term.column);
  return found == row.cells.end() ? nullptr : &found->second;
}

std::string name_of(const ClaimTerm& term) {
  return term.is_cell() ? term.row + "." + term.column : fmt::format("{}", term.number);
}

Cell exact_cell(double value) {
  Cell cell;
  cell.value = value;
  cell.exact = true;
  return cell;
}

}  // namespace

void estimate_error(Cell& cell, bool log) {
  if (cell.exact) {
    cell.error = 0;
    return;
  }
  cell.error = join_errors({repetition_error(cell, log), sample_error(cell), range_error(cell, log)});
  if (log) cell.error *= cell.value;
}

Comparison compare(const Cell& left, const Cell& right, double times, bool log) {
  Comparison result;
  result.left_value = left.value;
  result.right_value = right.value;
  result.difference = log ? std::log(left.value / (right.value * times)) : left.value - right.value * times;
  const double factor = log ? 1 : times;
  const double ranges = join_errors({range_error(left, log), factor * range_error(right, log)});
  result.error =
      join_errors({paired_repetitions(left, right, times, log), paired_samples(left, right, times, log), ranges});
  if (std::isnan(result.error) && left.exact && right.exact) result.error = 0;
  return result;
}

Verdict judge(double difference, double error, RecipeClaim::Relation relation, double margin) {
  if (std::isnan(difference) || std::isnan(error)) return Verdict::kUnclear;
  const double noise = kErrors * error;
  if (relation == RecipeClaim::Relation::kNear) {
    const double distance = std::abs(difference);
    if (distance + noise <= margin) return Verdict::kHeld;
    return distance - noise > margin ? Verdict::kNotHeld : Verdict::kUnclear;
  }
  const double towards = relation == RecipeClaim::Relation::kBelow ? -difference : difference;
  if (error == 0) return towards > 0 ? Verdict::kHeld : Verdict::kNotHeld;
  if (towards > noise) return Verdict::kHeld;
  return towards < -noise ? Verdict::kNotHeld : Verdict::kUnclear;
}

Verdict join_verdicts(const std::vector<Comparison>& comparisons) {
  const auto count = [&](Verdict verdict) {
    return std::count_if(comparisons.begin(), comparisons.end(), [&](const auto& c) { return c.verdict == verdict; });
  };
  if (count(Verdict::kNotHeld) > 0) return Verdict::kNotHeld;
  if (count(Verdict::kHeld) == std::ssize(comparisons) && !comparisons.empty()) return Verdict::kHeld;
  return count(Verdict::kNotMeasured) == std::ssize(comparisons) ? Verdict::kNotMeasured : Verdict::kUnclear;
}

JudgedClaim judge_claim(const RecipeClaim& claim, const Table& table) {
  JudgedClaim judged{.recipe = claim, .comparisons = {}, .verdict = Verdict::kNotMeasured, .reason = ""};
  const bool log = column_of(table, claim.left.column).log;
  const Cell* left = cell_of(table, claim.left);
  bool leaks = row_of(table, claim.left.row).leaks, missing = left == nullptr;
  for (const ClaimTerm& term : claim.right) {
    Comparison comparison;
    const Cell number = exact_cell(term.number);
    const Cell* right = term.is_cell() ? cell_of(table, term) : &number;
    if (left != nullptr && right != nullptr) {
      comparison = compare(*left, *right, claim.times, log);
      comparison.verdict = judge(comparison.difference, comparison.error, claim.relation, claim.margin);
    }
    missing = missing || right == nullptr;
    leaks = leaks || (term.is_cell() && row_of(table, term.row).leaks);
    comparison.left = name_of(claim.left);
    comparison.right = name_of(term);
    judged.comparisons.push_back(comparison);
  }
  judged.verdict = join_verdicts(judged.comparisons);
  if (missing && judged.verdict != Verdict::kNotHeld) judged.reason = "not all of its figures were measured";
  if (leaks && !claim.leaks && judged.verdict != Verdict::kNotMeasured) {
    judged.verdict = Verdict::kUnclear;
    judged.reason = "rests on a row that leaks";
  }
  return judged;
}

}  // namespace focus
