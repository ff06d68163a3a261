#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "report/plan.h"
#include "report/run_store.h"

namespace focus {

/// Throws UsageError for a command line that its command would refuse.
void check_flags(const Plan& plan);

/// Runs what a plan asks for, one command after another, each in a process of its own: what one of them needs or breaks
/// does not touch the others.
class ReproduceRunner {
 public:
  /// `root`: working folder of the commands.
  ReproduceRunner(const Plan& plan, const RunStore& store, std::filesystem::path root, bool force);

  /// Takes finished runs from the store and does the others, with progress and the time left. A run that fails is
  /// reported, those that need it are left out. Stops when interrupted; what has finished stays.
  void run();

  /// By run; nullopt: not run.
  const std::vector<std::optional<RunResult>>& results() const { return results_; }
  /// Runs that would be done now (before run()) or are still to be done.
  size_t open_runs() const;
  bool any_failed() const;

 private:
  void run_one(size_t index);
  RunResult execute(const PlannedRun& run) const;
  double seconds_left(size_t from, double spent_on_current) const;
  std::string status(size_t index, double seconds) const;

  const Plan& plan_;
  const RunStore& store_;
  std::filesystem::path root_;
  bool force_;
  std::vector<std::optional<RunResult>> results_;
  std::vector<bool> fresh_;  // Done by this call.
};

}  // namespace focus
