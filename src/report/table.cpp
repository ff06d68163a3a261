#include "report/table.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "report/figures.h"
#include "report/judging.h"

namespace focus {

namespace {

using nlohmann::json;

/// Figures of windows or items of one run; nullopt: not there.
std::optional<std::vector<double>> samples_of(const RunResult& run, const NoiseSource& noise, const std::string& path,
                                              const std::string& weights) {
  if (noise.kind == NoiseSource::Kind::kSamples) {
    const auto samples = read_samples(run.lines, path);
    if (!samples || weights.empty()) return samples;
    const auto weight = read_samples(run.lines, weights);
    if (!weight || weight->size() != samples->size()) return std::nullopt;
    return weighted_samples(*samples, *weight);
  }
  if (noise.kind == NoiseSource::Kind::kItems) {
    if (!std::filesystem::exists(run.folder / noise.file)) return std::nullopt;
    const std::filesystem::path file = run.folder / noise.file;
    return read_items(parse_json_lines(read_file(file), file.string()), path);
  }
  return std::vector<double>{};
}

/// Element by element; none when they are not equally many.
std::vector<double> mean_samples(const std::vector<std::vector<double>>& all) {
  std::vector<double> mean(all.front().size(), 0);
  for (const auto& samples : all) {
    if (samples.size() != mean.size()) return {};
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += samples[i] / static_cast<double>(all.size());
  }
  return mean;
}

/// Collects the cells of a row.
class RowFiller {
 public:
  RowFiller(const PlannedRow& planned, const Plan& plan, const std::vector<std::optional<RunResult>>& results)
      : planned_(planned), plan_(plan), results_(results) {}

  void fill(TableRow& row, const std::vector<RecipeColumn>& columns) const {
    row.missing = planned_.missing;
    for (const RecipeColumn& column : columns) fill_cell(row, column);
  }

 private:
  void fill_cell(TableRow& row, const RecipeColumn& column) const {
    Cell cell;
    std::vector<std::vector<double>> samples;
    std::vector<size_t> sources;
    for (const auto& repetition : planned_.sources) {
      const auto source = repetition.find(column.key);
      if (source == repetition.end()) return;
      const std::string& key = plan_.runs[source->second].key;
      if (std::find(row.runs.begin(), row.runs.end(), key) == row.runs.end()) row.runs.push_back(key);
      const auto& result = results_[source->second];
      if (!result || !result->error.empty()) {
        row.missing = result ? "failed: " + result->error : "not run yet";
        return;
      }
      const auto value = read_figure(result->lines, planned_.values.at(column.key));
      if (!value) {
        row.missing = fmt::format("no {} in what {} printed", planned_.values.at(column.key), key);
        return;
      }
      row.leaks = row.leaks || read_figure(result->lines, "leaks").value_or(0) != 0;
      cell.repetitions.push_back(*value);
      const auto found =
          samples_of(*result, column.noise, planned_.noise.at(column.key), planned_.weights.at(column.key));
      samples.push_back(found.value_or(std::vector<double>{}));
      sources.push_back(source->second);
      const bool is_range = column.noise.kind == NoiseSource::Kind::kRange;
      if ((is_range && !add_range(cell, *result, column.key)) || !found) {
        log_warning("row '{}', column '{}': the noise is unknown: {} is not in what {} left", row.recipe.id, column.key,
                    planned_.noise.at(column.key), key);
      }
    }
    if (cell.repetitions.empty()) return;
    cell.value = std::accumulate(cell.repetitions.begin(), cell.repetitions.end(), 0.0) /
                 static_cast<double>(cell.repetitions.size());
    cell.repeated = sources.size() > 1 && sources.front() != sources.back();
    cell.exact = column.noise.kind == NoiseSource::Kind::kExact && !cell.repeated;
    cell.samples = mean_samples(samples);
    estimate_error(cell, column.log);
    row.cells[column.key] = std::move(cell);
  }

  /// False: not there.
  bool add_range(Cell& cell, const RunResult& result, const std::string& column) const {
    const auto low = read_figure(result.lines, planned_.noise.at(column));
    const auto high = read_figure(result.lines, planned_.high.at(column));
    if (low) cell.low = std::min(*low, cell.low.value_or(*low));
    if (high) cell.high = std::max(*high, cell.high.value_or(*high));
    return low && high;
  }

  const PlannedRow& planned_;
  const Plan& plan_;
  const std::vector<std::optional<RunResult>>& results_;
};

}  // namespace

const TableRow* Table::best(const RecipeColumn& column) const {
  const TableRow* found = nullptr;
  int64_t rows_with_figures = 0;
  if (column.best == Better::kNone) return nullptr;
  for (const TableRow& row : rows) {
    const auto cell = row.cells.find(column.key);
    if (!row.ranked() || cell == row.cells.end()) continue;
    ++rows_with_figures;
    const double value = cell->second.value;
    const double former = found == nullptr ? 0 : found->cells.at(column.key).value;
    if (found == nullptr || (column.best == Better::kLow ? value < former : value > former)) found = &row;
  }
  return rows_with_figures < 2 ? nullptr : found;
}

Table make_table(const Recipe& recipe, const std::vector<PlannedRow>& planned, const Plan& plan,
                 const std::vector<std::optional<RunResult>>& results, const std::string& scale) {
  require(planned.size() == recipe.rows.size() && results.size() == plan.runs.size(),
          "{}: the plan does not belong to the recipe", recipe.name);
  Table table{.name = recipe.name,
              .title = recipe.title,
              .source = recipe.source,
              .about = recipe.about,
              .columns = recipe.columns,
              .rows = {},
              .claims = {},
              .plots = recipe.plots};
  for (size_t r = 0; r < recipe.rows.size(); ++r) {
    TableRow row;
    row.recipe = recipe.rows[r];
    row.recipe.title = planned[r].title;
    RowFiller(planned[r], plan, results).fill(row, recipe.columns);
    table.rows.push_back(std::move(row));
  }
  for (const RecipeClaim& claim : recipe.claims) {
    if (in_scale(claim.scales, scale)) table.claims.push_back(judge_claim(claim, table));
  }
  return table;
}

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kHeld:
      return "held";
    case Verdict::kNotHeld:
      return "not held";
    case Verdict::kUnclear:
      return "unclear";
    case Verdict::kNotMeasured:
      return "not measured";
  }
  return "";
}

}  // namespace focus
