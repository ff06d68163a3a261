#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace focus {

/// Names with their texts: variables, command lines.
using TextMap = std::map<std::string, std::string>;

/// The scales of every recipe.
inline const std::vector<std::string> kScales = {"quick", "small", "full"};

/// Which values of a column are the better ones.
enum class Better { kNone, kLow, kHigh };

/// Where the noise of a column's figures comes from.
struct NoiseSource {
  enum class Kind {
    kUnknown,  ///< From repetitions with other seeds only.
    kExact,    ///< A count: none.
    kSamples,  ///< An array in the result whose elements are paired between rows: `path`, weighted by `weights`.
    kItems,    ///< The same, from a member `path` of every line of `file` in the run's output folder.
    kRange     ///< Least and largest of several measurements: `path` and `high`.
  };
  Kind kind = Kind::kUnknown;
  std::string path, high, file;
  std::string weights;  ///< Array of the elements' weights in the figure; empty: equal.
};

struct RecipeColumn {
  std::string key, title;
  std::string value;  ///< Where the figure stands in a run's result (report/figures.h). Empty: the paper's only.
  int64_t digits = 2;
  bool percent = false;
  bool log = false;        ///< Compared as a ratio.
  bool only_from = false;  ///< Filled only in rows whose `from` names a run for it.
  Better best = Better::kNone;
  NoiseSource noise;
};

struct RecipeRow {
  std::string id, title, group;
  std::string run;                      ///< Where its figures come from; empty: the paper's only.
  TextMap from;                         ///< Column to another run.
  TextMap set;                          ///< Variables of this row.
  std::map<std::string, double> paper;  ///< Column to the paper's figure.
  std::string note;
  std::string unranked;             ///< Why it is never the best of a column.
  std::vector<std::string> scales;  ///< Empty: all.
};

/// One side of a claim: a cell, or a number.
struct ClaimTerm {
  std::string row, column;
  double number = 0;

  bool is_cell() const { return !row.empty(); }
};

struct RecipeClaim {
  enum class Relation { kBelow, kAbove, kNear };

  std::string text, paper;
  ClaimTerm left;
  std::vector<ClaimTerm> right;  ///< The claim must hold against each.
  Relation relation = Relation::kBelow;
  double times = 1;
  double margin = 0;   ///< Of kNear.
  bool leaks = false;  ///< May rest on rows that leak.
  std::vector<std::string> scales;
};

struct RecipePlot {
  std::string title, x, y;
};

/// Variables, by scale and ("vars") for all.
using ScaledVariables = std::map<std::string, TextMap>;

/// A table of the paper and how ours is measured (docs/formats.md).
struct Recipe {
  std::string name, title, source, about;
  ScaledVariables variables;
  TextMap needs;
  TextMap runs;                                                  ///< Command lines.
  std::map<std::string, std::map<std::string, double>> seconds;  ///< By scale and run.
  std::vector<RecipeColumn> columns;
  std::vector<RecipeRow> rows;
  std::vector<RecipeClaim> claims;
  std::vector<RecipePlot> plots;

  /// Throws Error for a key that no column has.
  const RecipeColumn& column(const std::string& key) const;
};

/// Whether a row or claim that names these scales belongs to this one.
bool in_scale(const std::vector<std::string>& scales, const std::string& scale);

/// Reads a recipe in TOML. Throws Error of one line, "FILE: line N: what was expected", for what is no TOML, a key that
/// is not known (with the nearest one), a value of another type, a name that refers to nothing or is used twice.
/// `name` is the table's name, `file` is for messages.
Recipe parse_recipe(const std::string& text, const std::string& name, const std::string& file);

/// What recipes/common.toml holds for all recipes.
struct CommonRecipe {
  ScaledVariables variables;
  TextMap needs;
};

/// Throws as parse_recipe does.
CommonRecipe parse_common_recipe(const std::string& text, const std::string& file);

}  // namespace focus
