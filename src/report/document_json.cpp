#include <cmath>

#include "report/document.h"

namespace focus {

namespace {

using nlohmann::json;

json number(double value) {
  return std::isfinite(value) ? json(value) : json();
}

json cell_json(const Cell& cell) {
  json result = {{"value", number(cell.value)},
                 {"stderr", number(cell.error)},
                 {"repetitions", cell.repetitions},
                 {"samples", cell.samples.size()}};
  if (cell.low) result["low"] = *cell.low;
  if (cell.high) result["high"] = *cell.high;
  return result;
}

json claim_json(const JudgedClaim& claim, const Table& table) {
  json comparisons = json::array();
  for (const Comparison& c : claim.comparisons) {
    const bool measured = c.verdict != Verdict::kNotMeasured;
    comparisons.push_back({{"left", c.left},
                           {"right", c.right},
                           {"left_value", measured ? number(c.left_value) : json()},
                           {"right_value", measured ? number(c.right_value) : json()},
                           {"difference", measured ? number(c.difference) : json()},
                           {"stderr", measured ? number(c.error) : json()},
                           {"noise", measured ? number(c.noise) : json()},
                           {"verdict", verdict_name(c.verdict)}});
  }
  return {
      {"text", claim.recipe.text}, {"paper", claim.recipe.paper},           {"verdict", verdict_name(claim.verdict)},
      {"reason", claim.reason},    {"figures", format_claim(claim, table)}, {"comparisons", comparisons}};
}

json table_json(const Table& table) {
  json columns = json::array(), rows = json::array(), claims = json::array(), plots = json::array();
  for (const RecipeColumn& column : table.columns) {
    const TableRow* best = table.best(column);
    columns.push_back({{"key", column.key},
                       {"title", column.title},
                       {"digits", column.digits},
                       {"percent", column.percent},
                       {"better", column.best == Better::kNone  ? json()
                                  : column.best == Better::kLow ? json("low")
                                                                : json("high")},
                       {"best", best != nullptr ? json(best->recipe.id) : json()}});
  }
  for (const TableRow& row : table.rows) {
    json ours = json::object();
    for (const auto& [key, cell] : row.cells) ours[key] = cell_json(cell);
    rows.push_back({{"id", row.recipe.id},
                    {"title", row.recipe.title},
                    {"group", row.recipe.group},
                    {"note", row.recipe.note},
                    {"unranked", row.recipe.unranked},
                    {"leaks", row.leaks},
                    {"missing", row.missing},
                    {"paper", row.recipe.paper},
                    {"ours", ours},
                    {"runs", row.runs}});
  }
  for (const JudgedClaim& claim : table.claims) claims.push_back(claim_json(claim, table));
  for (const RecipePlot& plot : table.plots) plots.push_back({{"title", plot.title}, {"x", plot.x}, {"y", plot.y}});
  return {{"name", table.name}, {"title", table.title}, {"source", table.source}, {"about", table.about},
          {"columns", columns}, {"rows", rows},         {"claims", claims},       {"plots", plots}};
}

}  // namespace

json document_json(const ReportDocument& document) {
  json tables = json::array(), runs = json::array();
  for (const Table& table : document.tables) tables.push_back(table_json(table));
  for (const ReportedRun& run : document.runs) {
    runs.push_back({{"key", run.key},
                    {"command", run.command},
                    {"seconds", run.seconds},
                    {"program", run.program},
                    {"error", run.error}});
  }
  return {{"program", document.program},
          {"date", document.date},
          {"machine", document.machine},
          {"scale", document.scale},
          {"repetitions", document.repetitions},
          {"given", document.given},
          {"tables", tables},
          {"runs", runs}};
}

}  // namespace focus
