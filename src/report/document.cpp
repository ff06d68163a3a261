#include "report/document.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/progress.h"

namespace focus {

namespace {

using Row = std::vector<std::string>;

const std::string kPlusMinus = " \u00b1 ";

/// Characters of valid UTF-8.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.insert(at, 1, '\\');
  return text;
}

/// Head and rows, columns padded to the same width; `right`: which are flush right.
std::string markdown_table(const std::vector<Row>& rows, const std::vector<bool>& right) {
  std::vector<size_t> widths(rows.front().size(), 3);
  for (const Row& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width(row[c]));
  }
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t c = 0; c < rows[r].size(); ++c) {
      const std::string pad(widths[c] - width(rows[r][c]), ' ');
      text += "| " + (right[c] ? pad + rows[r][c] : rows[r][c] + pad) + " ";
    }
    text += "|\n";
    if (r > 0) continue;
    for (size_t c = 0; c < widths.size(); ++c) {
      text += right[c] ? "| " + std::string(widths[c] - 1, '-') + ": " : "| " + std::string(widths[c], '-') + " ";
    }
    text += "|\n";
  }
  return text;
}

/// Columns of a table that hold something of the paper or of ours.
struct Shown {
  const RecipeColumn* column;
  bool paper, ours;
};

std::vector<Shown> shown_columns(const Table& table) {
  std::vector<Shown> all;
  for (const RecipeColumn& column : table.columns) {
    Shown shown{&column, false, false};
    for (const TableRow& row : table.rows) {
      shown.paper = shown.paper || row.recipe.paper.contains(column.key);
      shown.ours = shown.ours || row.cells.contains(column.key);
    }
    if (shown.paper || shown.ours) all.push_back(shown);
  }
  return all;
}

std::string remarks(const TableRow& row) {
  std::vector<std::string> parts;
  if (row.leaks) parts.emplace_back("leaks: not ranked");
  if (!row.recipe.unranked.empty()) parts.push_back(row.recipe.unranked + ": not ranked");
  if (!row.recipe.note.empty()) parts.push_back(row.recipe.note);
  if (!row.missing.empty()) parts.push_back(row.missing);
  return one_line(fmt::format("{}", fmt::join(parts, "; ")));
}

std::string rows_text(const Table& table) {
  const std::vector<Shown> columns = shown_columns(table);
  const bool has_remarks =
      std::any_of(table.rows.begin(), table.rows.end(), [](const TableRow& row) { return !remarks(row).empty(); });
  Row head = {""};
  std::vector<bool> right = {false};
  for (const Shown& shown : columns) {
    if (shown.paper) head.push_back(one_line(shown.column->title) + ", paper");
    if (shown.ours) head.push_back(one_line(shown.column->title) + ", ours");
    right.insert(right.end(), static_cast<size_t>(shown.paper) + static_cast<size_t>(shown.ours), true);
  }
  if (has_remarks) {
    head.emplace_back("remarks");
    right.push_back(false);
  }
  std::vector<Row> rows = {head};
  std::string group;
  for (const TableRow& row : table.rows) {
    if (row.recipe.group != group) {
      group = row.recipe.group;
      rows.emplace_back(head.size());
      rows.back().front() = fmt::format("**{}**", one_line(group));
    }
    Row cells = {one_line(row.recipe.title)};
    for (const Shown& shown : columns) {
      const std::string& key = shown.column->key;
      const auto paper = row.recipe.paper.find(key);
      const auto ours = row.cells.find(key);
      if (shown.paper)
        cells.push_back(paper == row.recipe.paper.end() ? "" : format_figure(paper->second, *shown.column));
      if (!shown.ours) continue;
      std::string text = ours == row.cells.end() ? "" : format_cell(ours->second, *shown.column);
      if (table.best(*shown.column) == &row) text = fmt::format("**{}**", text);
      cells.push_back(text);
    }
    if (has_remarks) cells.push_back(remarks(row));
    rows.push_back(cells);
  }
  return markdown_table(rows, right);
}

std::string claims_text(const Table& table) {
  if (table.claims.empty()) return "";
  std::vector<Row> rows = {{"claim", "paper", "ours", "verdict"}};
  for (const JudgedClaim& claim : table.claims) {
    std::string figures = format_claim(claim, table);
    if (!figures.empty() && !claim.reason.empty()) figures.append("; ");
    figures.append(claim.reason);
    rows.push_back({one_line(claim.recipe.text), one_line(claim.recipe.paper), one_line(figures),
                    fmt::format("**{}**", verdict_name(claim.verdict))});
  }
  return fmt::format("\n{}", markdown_table(rows, {false, false, false, false}));
}

}  // namespace

std::string format_figure(double value, const RecipeColumn& column) {
  const int digits = static_cast<int>(column.digits);
  return column.percent ? fmt::format("{:.{}f}%", 100 * value, digits) : fmt::format("{:.{}f}", value, digits);
}

std::string format_cell(const Cell& cell, const RecipeColumn& column) {
  std::string text = format_figure(cell.value, column);
  if (std::isnan(cell.error) || cell.error == 0) return text;
  const double error = column.percent ? 100 * cell.error : cell.error;
  return text + kPlusMinus + fmt::format("{:.{}f}", error, static_cast<int>(column.digits));
}

std::string format_claim(const JudgedClaim& claim, const Table& table) {
  const auto found = std::find_if(table.columns.begin(), table.columns.end(),
                                  [&](const RecipeColumn& c) { return c.key == claim.recipe.left.column; });
  if (found == table.columns.end()) return "";
  const RecipeColumn& column = *found;
  std::vector<std::string> parts;
  for (const Comparison& c : claim.comparisons) {
    if (c.verdict == Verdict::kNotMeasured) continue;
    std::string text =
        fmt::format("{} against {}", format_figure(c.left_value, column), format_figure(c.right_value, column));
    if (column.log) {
      const double ratio = c.left_value / c.right_value;
      text += fmt::format(": ratio {:.4f}", ratio);
      if (c.error > 0) text += kPlusMinus + fmt::format("{:.4f}", ratio * c.error);
    } else if (c.error > 0) {
      const double factor = column.percent ? 100 : 1;
      text += fmt::format(": difference {:+.{}f}", factor * c.difference, static_cast<int>(column.digits + 1));
      text += kPlusMinus + fmt::format("{:.{}f}", factor * c.error, static_cast<int>(column.digits + 1));
    }
    if (claim.recipe.times != 1) text += fmt::format(" (bound: times {:g})", claim.recipe.times);
    if (claim.recipe.margin > 0) text += fmt::format(" (within {:g})", claim.recipe.margin);
    parts.push_back(text);
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string markdown_tables(const ReportDocument& document) {
  std::string text;
  for (const Table& table : document.tables) {
    text += fmt::format("{}## {}: {}\n\nThe paper's {}.{}\n\n", text.empty() ? "" : "\n", table.name, table.title,
                        table.source, table.about.empty() ? "" : " " + table.about);
    text += rows_text(table) + claims_text(table);
  }
  return text;
}

std::string markdown_document(const ReportDocument& document) {
  std::string text = "# The paper's tables beside ours\n\n";
  text += fmt::format("Made by `focus reproduce`, focus {}, scale {}, {} {}, on {}, {}.", document.program,
                      document.scale, document.repetitions, document.repetitions == 1 ? "repetition" : "repetitions",
                      document.date, document.machine);
  for (const auto& [name, value] : document.given) text += fmt::format(" {} = {}.", name, value);
  text +=
      " Figures stand with one standard error (over repetitions, windows or items) where it is known. A claim is held "
      "or not held when its difference is beyond two standard errors (beyond more where fewer than some thirty values "
      "tell them), else unclear. Bold: the best of ours in a column, without rows that leak.\n\n";
  text += markdown_tables(document);
  text += "\n## Commands\n\nEach with the seconds it took; `runs/` lies in the output folder.\n\n";
  for (const ReportedRun& run : document.runs) {
    text += fmt::format("- {} ({:.1f} s{}{}): `{}`\n", run.key, run.seconds,
                        run.program == document.program ? "" : ", by " + run.program,
                        run.error.empty() ? "" : ", failed: " + run.error, run.command);
  }
  return text;
}

}  // namespace focus
