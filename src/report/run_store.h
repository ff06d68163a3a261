#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "report/plan.h"
#include "report/table.h"

namespace focus {

/// Folders of runs, each named by its key: `run.json` (key, arguments, program, whether it finished, seconds),
/// `stdout.jsonl`, `stderr.log` and what the command left.
class RunStore {
 public:
  /// Only runs of this program (version and commit) count, with `any_program` those of others too.
  RunStore(std::string program, bool any_program) : program_(std::move(program)), any_program_(any_program) {}

  /// What the run gave; nullopt when it has not finished. A folder that is damaged counts as not finished.
  std::optional<RunResult> find(const PlannedRun& run) const;
  /// Makes the folder ready to run in: empty, unless a training that was interrupted left a checkpoint or a finished
  /// first phase there. Returns whether it did, and the training can go on with --resume.
  bool begin(const PlannedRun& run) const;
  /// Seconds spent on a run that has not finished, by the last pause().
  double seconds_so_far(const PlannedRun& run) const;
  /// Notes the seconds spent on a run that ended before it had finished.
  void pause(const PlannedRun& run, double seconds) const;
  /// Marks a run as finished; its stdout.jsonl holds JSON lines. Throws Error when it does not.
  RunResult finish(const PlannedRun& run, double seconds) const;
  /// The last error that the command reported; "" when it reported none.
  std::string last_error(const PlannedRun& run) const;

  static std::filesystem::path output(const PlannedRun& run) { return run.folder / "stdout.jsonl"; }
  static std::filesystem::path log(const PlannedRun& run) { return run.folder / "stderr.log"; }

 private:
  std::optional<nlohmann::json> record(const PlannedRun& run) const;
  void write_record(const PlannedRun& run, bool finished, double seconds) const;

  std::string program_;
  bool any_program_;
};

}  // namespace focus
