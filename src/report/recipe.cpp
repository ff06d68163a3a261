#include "report/recipe.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "report/figures.h"
#include "report/toml_reader.h"

namespace focus {

namespace {

constexpr const char* kEveryScale = "vars";

ScaledVariables read_variables(TomlReader& reader) {
  ScaledVariables variables;
  variables[kEveryScale] = reader.map_of_texts(kEveryScale);
  for (const std::string& scale : kScales) variables[scale] = reader.map_of_texts(scale.c_str());
  return variables;
}

std::vector<std::string> read_scales(TomlReader& reader) {
  std::vector<std::string> scales = reader.texts_or_none("scales");
  for (const std::string& scale : scales) {
    if (std::find(kScales.begin(), kScales.end(), scale) == kScales.end()) {
      reader.fail_here(fmt::format("scales: '{}'; expected {}", scale, fmt::join(kScales, ", ")));
    }
  }
  return scales;
}

void check_path(const TomlReader& reader, const char* key, const std::string& path) {
  const std::string fault = figure_path_fault(path);
  if (!fault.empty()) reader.fail_here(fmt::format("{} '{}': {}", key, path, fault));
}

NoiseSource read_noise(TomlReader& reader) {
  NoiseSource noise;
  const std::string text = reader.text_or("noise", "");
  if (text.empty()) return noise;
  if (text == "exact") {
    noise.kind = NoiseSource::Kind::kExact;
    return noise;
  }
  const size_t range = text.find(".."), item = text.find('#');
  if (range != std::string::npos) {
    noise.kind = NoiseSource::Kind::kRange;
    noise.path = text.substr(0, range);
    noise.high = text.substr(range + 2);
    check_path(reader, "noise", noise.high);
  } else if (item != std::string::npos) {
    noise.kind = NoiseSource::Kind::kItems;
    noise.file = text.substr(0, item);
    noise.path = text.substr(item + 1);
  } else {
    noise.kind = NoiseSource::Kind::kSamples;
    const size_t at = text.find('@');
    noise.path = text.substr(0, at);
    if (at != std::string::npos) {
      noise.weights = text.substr(at + 1);
      check_path(reader, "noise", noise.weights);
    }
  }
  check_path(reader, "noise", noise.path);
  return noise;
}

RecipeColumn read_column(TomlReader& reader) {
  RecipeColumn column;
  column.key = reader.text("key");
  column.title = reader.text("title");
  column.value = reader.text_or("value", "");
  if (!column.value.empty()) check_path(reader, "value", column.value);
  column.digits = reader.integer_or("digits", column.digits);
  if (column.digits < 0 || column.digits > 9) reader.fail_here("digits: expected 0 to 9");
  column.percent = reader.flag_or("percent", false);
  column.log = reader.flag_or("log", false);
  column.only_from = reader.flag_or("only-from", false);
  const std::string best = reader.text_or("best", "");
  if (!best.empty() && best != "low" && best != "high") reader.fail_here("best: expected low or high");
  column.best = best.empty() ? Better::kNone : best == "low" ? Better::kLow : Better::kHigh;
  column.noise = read_noise(reader);
  reader.finish();
  return column;
}

RecipeRow read_row(TomlReader& reader) {
  RecipeRow row;
  row.id = reader.text("id");
  row.title = reader.text("title");
  row.group = reader.text_or("group", "");
  row.run = reader.text_or("run", "");
  row.from = reader.map_of_texts("from");
  row.set = reader.map_of_texts("set");
  row.paper = reader.map_of_numbers("paper");
  row.note = reader.text_or("note", "");
  row.unranked = reader.text_or("unranked", "");
  row.scales = read_scales(reader);
  reader.finish();
  return row;
}

ClaimTerm read_term(const TomlReader& reader, const char* key, const toml::node& node) {
  ClaimTerm term;
  if (const auto* number = node.as_integer()) {
    term.number = static_cast<double>(number->get());
  } else if (const auto* real = node.as_floating_point()) {
    term.number = real->get();
  } else if (const auto* text = node.as_string()) {
    const std::string& cell = text->get();
    const size_t dot = cell.rfind('.');
    if (dot == std::string::npos || dot == 0 || dot + 1 == cell.size()) {
      reader.fail_at(node, fmt::format("{} '{}': expected ROW.COLUMN", key, cell));
    }
    term.row = cell.substr(0, dot);
    term.column = cell.substr(dot + 1);
  } else {
    reader.fail_at(node, fmt::format("{}: expected ROW.COLUMN or a number", key));
  }
  return term;
}

RecipeClaim read_claim(TomlReader& reader) {
  RecipeClaim claim;
  claim.text = reader.text("text");
  claim.paper = reader.text_or("paper", "");
  const toml::node* left = reader.node("left");
  const toml::node* right = reader.node("right");
  if (left == nullptr || right == nullptr) reader.fail_here("left and right are needed");
  claim.left = read_term(reader, "left", *left);
  if (!claim.left.is_cell()) reader.fail_at(*left, "left: expected ROW.COLUMN");
  if (const toml::array* all = right->as_array()) {
    for (const toml::node& node : *all) claim.right.push_back(read_term(reader, "right", node));
  } else {
    claim.right.push_back(read_term(reader, "right", *right));
  }
  if (claim.right.empty()) reader.fail_at(*right, "right: expected at least one ROW.COLUMN or number");
  const std::string is = reader.text("is");
  if (is != "<" && is != ">" && is != "~") reader.fail_here(fmt::format("is '{}': expected <, > or ~", is));
  claim.relation = is == "<"   ? RecipeClaim::Relation::kBelow
                   : is == ">" ? RecipeClaim::Relation::kAbove
                               : RecipeClaim::Relation::kNear;
  claim.times = reader.number_or("times", 1);
  if (claim.times <= 0) reader.fail_here("times: expected a number above 0");
  claim.margin = reader.number_or("margin", 0);
  const bool near = claim.relation == RecipeClaim::Relation::kNear;
  if (near != (claim.margin > 0))
    reader.fail_here("margin: a number above 0 belongs to every claim with ~, and to no other");
  claim.leaks = reader.flag_or("leaks", false);
  claim.scales = read_scales(reader);
  reader.finish();
  return claim;
}

/// What refers to what.
class References {
 public:
  References(const Recipe& recipe, const TomlReader& reader) : recipe_(recipe), reader_(reader) {}

  void check() const {
    unique("columns", recipe_.columns, &RecipeColumn::key);
    unique("rows", recipe_.rows, &RecipeRow::id);
    for (const RecipeRow& row : recipe_.rows) check_row(row);
    for (const RecipeClaim& claim : recipe_.claims) {
      check_term(claim, claim.left);
      for (const ClaimTerm& term : claim.right) check_term(claim, term);
    }
    for (const RecipePlot& plot : recipe_.plots) {
      for (const std::string& key : {plot.x, plot.y}) column("plots", key);
    }
    for (const auto& [scale, runs] : recipe_.seconds) {
      for (const auto& [run, seconds] : runs) check_run("seconds." + scale, run);
    }
  }

 private:
  template <typename T>
  void unique(const char* what, const std::vector<T>& entries, std::string T::*name) const {
    if (entries.empty()) reader_.fail_here(fmt::format("{}: none", what));
    std::set<std::string> seen;
    for (const T& entry : entries) {
      if (!seen.insert(entry.*name).second)
        reader_.fail_here(fmt::format("{}: '{}' stands there twice", what, entry.*name));
    }
  }

  void column(const std::string& where, const std::string& key) const {
    std::vector<std::string> keys;
    for (const RecipeColumn& known : recipe_.columns) keys.push_back(known.key);
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      reader_.fail_here(fmt::format("{}: no column '{}'; columns: {}", where, key, fmt::join(keys, ", ")));
    }
  }

  void check_run(const std::string& where, const std::string& run) const {
    if (recipe_.runs.contains(run)) return;
    std::vector<std::string> names;
    for (const auto& [name, line] : recipe_.runs) names.push_back(name);
    reader_.fail_here(fmt::format("{}: no run '{}'; runs: {}", where, run, fmt::join(names, ", ")));
  }

  void check_row(const RecipeRow& row) const {
    const std::string where = fmt::format("rows: '{}'", row.id);
    if (!row.run.empty()) check_run(where, row.run);
    for (const auto& [key, run] : row.from) {
      column(where, key);
      check_run(where, run);
      if (recipe_.column(key).value.empty()) reader_.fail_here(fmt::format("{}: column '{}' has no value", where, key));
    }
    for (const auto& [key, figure] : row.paper) column(where, key);
    if (row.run.empty() && row.from.empty() && row.paper.empty()) {
      reader_.fail_here(where + ": expected a run, the paper's figures or both");
    }
  }

  void check_term(const RecipeClaim& claim, const ClaimTerm& term) const {
    if (!term.is_cell()) return;
    const std::string where = fmt::format("claims: '{}'", claim.text);
    const auto known = [&](const RecipeRow& row) { return row.id == term.row; };
    if (std::none_of(recipe_.rows.begin(), recipe_.rows.end(), known)) {
      reader_.fail_here(fmt::format("{}: no row '{}'", where, term.row));
    }
    column(where, term.column);
  }

  const Recipe& recipe_;
  const TomlReader& reader_;
};

}  // namespace

const RecipeColumn& Recipe::column(const std::string& key) const {
  const auto found = std::find_if(columns.begin(), columns.end(), [&](const RecipeColumn& c) { return c.key == key; });
  require(found != columns.end(), "{}: no column '{}'", name, key);
  return *found;
}

bool in_scale(const std::vector<std::string>& scales, const std::string& scale) {
  return scales.empty() || std::find(scales.begin(), scales.end(), scale) != scales.end();
}

Recipe parse_recipe(const std::string& text, const std::string& name, const std::string& file) {
  const toml::table root = parse_toml(text, file);
  TomlReader reader(root, file, "");
  Recipe recipe;
  recipe.name = name;
  recipe.title = reader.text("title");
  recipe.source = reader.text("source");
  recipe.about = reader.text_or("about", "");
  recipe.variables = read_variables(reader);
  recipe.needs = reader.map_of_texts("needs");
  recipe.runs = reader.map_of_texts("runs");
  if (auto seconds = reader.table("seconds")) {
    for (const std::string& scale : kScales) recipe.seconds[scale] = seconds->map_of_numbers(scale.c_str());
    seconds->finish();
  }
  for (TomlReader& column : reader.tables("columns")) recipe.columns.push_back(read_column(column));
  for (TomlReader& row : reader.tables("rows")) recipe.rows.push_back(read_row(row));
  for (TomlReader& claim : reader.tables("claims")) recipe.claims.push_back(read_claim(claim));
  for (TomlReader& plot : reader.tables("plots")) {
    recipe.plots.push_back({plot.text("title"), plot.text("x"), plot.text("y")});
    plot.finish();
  }
  reader.finish();
  References(recipe, reader).check();
  return recipe;
}

CommonRecipe parse_common_recipe(const std::string& text, const std::string& file) {
  const toml::table root = parse_toml(text, file);
  TomlReader reader(root, file, "");
  CommonRecipe common{.variables = read_variables(reader), .needs = reader.map_of_texts("needs")};
  reader.finish();
  return common;
}

}  // namespace focus
