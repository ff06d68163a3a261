#include "report/judging.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "eval/statistics.h"

namespace focus {

namespace {

constexpr double kErrors = 2;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

/// A standard error and what a difference must exceed to be none of it.
struct Noise {
  double error = kUnknown, width = kUnknown;
};

Noise scaled(Noise noise, double factor) {
  return {noise.error * factor, noise.width * factor};
}

/// Square roots of the sums of squares of those that are known; NaN when none is.
Noise join(std::initializer_list<Noise> all) {
  Noise squares{0, 0};
  bool known = false;
  for (const Noise& noise : all) {
    if (std::isnan(noise.error)) continue;
    known = true;
    squares.error += noise.error * noise.error;
    squares.width += noise.width * noise.width;
  }
  return known ? Noise{std::sqrt(squares.error), std::sqrt(squares.width)} : Noise{};
}

double as_compared(double value, bool log) {
  return log ? std::log(value) : value;
}

Noise noise_of(const std::vector<double>& values) {
  if (values.size() < 2) return {};
  const double error = mean_error(values).error;
  return {error, noise_factor(values.size()) * error};
}

Noise repetition_noise(const Cell& cell, bool log) {
  if (!cell.repeated) return {};
  std::vector<double> values;
  for (const double value : cell.repetitions) values.push_back(as_compared(value, log));
  return noise_of(values);
}

Noise range_noise(const Cell& cell, bool log) {
  if (!cell.low || !cell.high) return {};
  const double error = (as_compared(*cell.high, log) - as_compared(*cell.low, log)) / (2 * kErrors);
  return {error, kErrors * error};
}

Noise paired_repetitions(const Cell& left, const Cell& right, double times, bool log) {
  if (!left.repeated && !right.repeated) return {};
  if (left.repetitions.size() != right.repetitions.size()) {
    return join({repetition_noise(left, log), scaled(repetition_noise(right, log), log ? 1 : times)});
  }
  std::vector<double> differences;
  for (size_t i = 0; i < left.repetitions.size(); ++i) {
    const double other = log ? std::log(right.repetitions[i]) : times * right.repetitions[i];
    differences.push_back(as_compared(left.repetitions[i], log) - other);
  }
  return noise_of(differences);
}

Noise paired_samples(const Cell& left, const Cell& right, double times, bool log) {
  const double factor = log ? 1 : times;
  if (left.samples.size() != right.samples.size() || left.samples.size() < 2) {
    const Noise a = noise_of(left.samples), b = scaled(noise_of(right.samples), factor);
    const bool one_is_enough = left.exact || right.exact;
    return one_is_enough || (!std::isnan(a.error) && !std::isnan(b.error)) ? join({a, b}) : Noise{};
  }
  std::vector<double> differences;
  for (size_t i = 0; i < left.samples.size(); ++i) differences.push_back(left.samples[i] - factor * right.samples[i]);
  return noise_of(differences);
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

/// Quantiles of Student's t at 97.5% for 1 to 30 degrees of freedom.
constexpr std::array<double, 30> kStudent = {12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060,
                                             2.2622,  2.2281, 2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199,
                                             2.1098,  2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639,
                                             2.0595,  2.0555, 2.0518, 2.0484, 2.0452, 2.0423};
constexpr double kNormal = 1.95996;

}  // namespace

std::vector<double> weighted_samples(const std::vector<double>& figures, const std::vector<double>& weights) {
  require(figures.size() == weights.size(), "{} figures with {} weights", figures.size(), weights.size());
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double mean = std::inner_product(figures.begin(), figures.end(), weights.begin(), 0.0) / sum;
  std::vector<double> samples;
  for (size_t i = 0; i < figures.size(); ++i) {
    samples.push_back(mean + static_cast<double>(figures.size()) * weights[i] / sum * (figures[i] - mean));
  }
  return samples;
}

double noise_factor(size_t n) {
  require(n >= 2, "the noise of {} values", n);
  const size_t freedom = n - 1;
  if (freedom <= kStudent.size()) return kErrors * kStudent[freedom - 1] / kNormal;
  // First term of the quantile's expansion in 1 / freedom (Abramowitz and Stegun, 26.7.5).
  return kErrors * (1 + (kNormal * kNormal + 1) / (4 * static_cast<double>(freedom)));
}

void estimate_error(Cell& cell, bool log) {
  if (cell.exact) {
    cell.error = 0;
    return;
  }
  cell.error = join({repetition_noise(cell, log), noise_of(cell.samples), range_noise(cell, log)}).error;
  if (log) cell.error *= cell.value;
}

Comparison compare(const Cell& left, const Cell& right, double times, bool log) {
  Comparison result;
  result.left_value = left.value;
  result.right_value = right.value;
  result.difference = log ? std::log(left.value / (right.value * times)) : left.value - right.value * times;
  const double factor = log ? 1 : times;
  Noise noise = join({paired_repetitions(left, right, times, log), paired_samples(left, right, times, log),
                      range_noise(left, log), scaled(range_noise(right, log), factor)});
  if (std::isnan(noise.error) && left.exact && right.exact) noise = {0, 0};
  result.error = noise.error;
  result.noise = noise.width;
  return result;
}

Verdict judge(double difference, double noise, RecipeClaim::Relation relation, double margin) {
  if (std::isnan(difference) || std::isnan(noise)) return Verdict::kUnclear;
  if (relation == RecipeClaim::Relation::kNear) {
    const double distance = std::abs(difference);
    if (distance + noise <= margin) return Verdict::kHeld;
    return distance - noise > margin ? Verdict::kNotHeld : Verdict::kUnclear;
  }
  const double towards = relation == RecipeClaim::Relation::kBelow ? -difference : difference;
  if (noise == 0) return towards > 0 ? Verdict::kHeld : Verdict::kNotHeld;
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
      comparison.verdict = judge(comparison.difference, comparison.noise, claim.relation, claim.margin);
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
