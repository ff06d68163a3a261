#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "report/recipe.h"

namespace focus {

/// What a plan is made for.
struct PlanSettings {
  std::string scale;
  CommonRecipe common;
  TextMap given;  ///< By the user.
  int64_t repetitions = 1;
  std::filesystem::path root;      ///< Relative paths in command lines begin here.
  std::filesystem::path runs;      ///< Folder of all runs.
  std::vector<std::string> flags;  ///< Put behind every command, such as --threads 2.
  std::string version;             ///< Of the program: part of every key.
  std::string machine;  ///< What times depend on beside the flags: part of the keys of runs whose time is shown.
  /// Content of a file or folder as a short text; throws Error when it is not there.
  std::function<std::string(const std::filesystem::path&)> fingerprint;
};

/// One command to be run.
struct PlannedRun {
  std::string key;                     ///< Of all that decides the result; name of its folder.
  std::string label;                   ///< "t7: hard (GPT-2, k = 1)".
  std::vector<std::string> arguments;  ///< Without the program's name.
  std::filesystem::path folder;
  std::vector<size_t> after;  ///< Runs whose output it reads.
  double seconds = 0;         ///< Expected; 0: unknown.
};

/// Where the figures of a row come from.
struct PlannedRow {
  std::string title;  ///< Variables replaced.
  /// By repetition, column to run.
  std::vector<std::map<std::string, size_t>> sources;
  TextMap values;                ///< Column to the path of its figure, variables replaced.
  TextMap noise, high, weights;  ///< The same of NoiseSource::path, high and weights.
  std::string missing;           ///< Why nothing of it is run, such as variables that only the user can give.
};

struct Plan {
  std::vector<PlannedRun> runs;               ///< Each after those that it needs.
  std::vector<std::vector<PlannedRow>> rows;  ///< By recipe and row.
  std::set<std::string> used;                 ///< Variables given by the user that a row which is run depends on.
};

/// The runs that the recipes need at this scale, every command line once. A recipe's variable in place of a run's
/// output ("lists.adapter") counts only where neither the user nor the row gives a variable that the run depends on.
/// Throws Error naming recipe, row and run for an unknown variable, runs that need each other or a file that is not
/// there.
Plan make_plan(const std::vector<Recipe>& recipes, const PlanSettings& settings);

/// Splits a command line at blanks; "double quotes" keep them. Throws Error for an open quote.
std::vector<std::string> split_command(const std::string& line);

/// A command line as one would type it, with what lies below `runs` or `root` written from there.
std::string show_command(const std::vector<std::string>& arguments, const std::filesystem::path& root,
                         const std::filesystem::path& runs);

}  // namespace focus
