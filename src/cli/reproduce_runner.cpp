#include "cli/reproduce_runner.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/child_process.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/command.h"

namespace focus {

void check_flags(const Plan& plan) {
  for (const PlannedRun& run : plan.runs) {
    const std::string& name = run.arguments.front();
    const auto& all = commands();
    const auto entry = std::find_if(all.begin(), all.end(), [&](const CommandEntry& e) { return e.name == name; });
    if (entry == all.end() || name == "reproduce") fail_usage("{}: '{}' is no command to be run", run.label, name);
    const std::unique_ptr<Command> command = entry->make();
    OptionTable table{std::string(entry->name), std::string(entry->summary)};
    command->declare(table);
    try {
      table.parse({run.arguments.begin() + 1, run.arguments.end()});
    } catch (const Error& error) {
      fail_usage("{}: {}", run.label, error.what());
    }
  }
}

ReproduceRunner::ReproduceRunner(const Plan& plan, const RunStore& store, std::filesystem::path root, bool force)
    : plan_(plan),
      store_(store),
      root_(std::move(root)),
      force_(force),
      results_(plan.runs.size()),
      fresh_(plan.runs.size(), false) {
  if (force) return;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    // A run counts only with those it was made from.
    const auto& after = plan.runs[i].after;
    if (std::all_of(after.begin(), after.end(), [&](size_t j) { return results_[j].has_value(); })) {
      results_[i] = store.find(plan.runs[i]);
    }
  }
}

size_t ReproduceRunner::open_runs() const {
  return static_cast<size_t>(std::count(results_.begin(), results_.end(), std::nullopt));
}

bool ReproduceRunner::any_failed() const {
  return std::any_of(results_.begin(), results_.end(), [](const auto& r) { return r && !r->error.empty(); });
}

/// Expected seconds of what is to be done, by how the runs of this call compare with what was expected of them.
double ReproduceRunner::seconds_left(size_t from, double spent_on_current) const {
  double expected = 0, measured = 0, done = 0, left = 0, unknown = 0;
  for (size_t i = 0; i < results_.size(); ++i) {
    const double seconds = plan_.runs[i].seconds;
    if (i < from && fresh_[i] && results_[i]) {
      ++done;
      measured += results_[i]->seconds;
      expected += seconds;
    } else if (i >= from && !results_[i]) {
      left += seconds;
      unknown += seconds > 0 ? 0 : 1;
    }
  }
  const double factor = expected > 0 && measured > 0 ? measured / expected : 1;
  return std::max(0.0, factor * left + (done > 0 ? unknown * measured / done : 0) - spent_on_current);
}

std::string ReproduceRunner::status(size_t index, double seconds) const {
  return fmt::format("{}/{} {}, {}, {} left", index + 1, plan_.runs.size(), plan_.runs[index].label,
                     format_duration(seconds), format_duration(seconds_left(index, seconds)));
}

RunResult ReproduceRunner::execute(const PlannedRun& run) const {
  const auto began = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(); };
  const size_t index = static_cast<size_t>(&run - plan_.runs.data());
  std::vector<std::string> command = {own_program().string()};
  command.insert(command.end(), run.arguments.begin(), run.arguments.end());
  double before = 0;  // Seconds of earlier calls that this one goes on from.
  if (store_.begin(run)) {
    command.emplace_back("--resume");
    before = store_.seconds_so_far(run);
  }
  const ChildFiles files{.folder = root_, .output = RunStore::output(run), .error = RunStore::log(run)};
  const ChildExit end = run_child(command, files, [&] { draw_status_line(status(index, seconds())); });
  draw_status_line("");
  if (end.status == 0) return store_.finish(run, before + seconds());
  store_.pause(run, before + seconds());
  RunResult failed;
  failed.folder = run.folder;
  failed.seconds = before + seconds();
  failed.error = store_.last_error(run);
  if (end.status < 0) failed.error = fmt::format("ended by signal {}", end.signal);
  if (failed.error.empty()) failed.error = fmt::format("exit code {}, see {}", end.status, RunStore::log(run).string());
  return failed;
}

void ReproduceRunner::run_one(size_t index) {
  const PlannedRun& run = plan_.runs[index];
  for (const size_t needed : run.after) {
    if (!results_[needed]->error.empty()) {
      results_[index] = RunResult{.lines = {},
                                  .folder = run.folder,
                                  .seconds = 0,
                                  .program = "",
                                  .error = "needs " + plan_.runs[needed].label + ", which failed"};
      return;
    }
  }
  RunResult result = execute(run);
  if (interrupted() && !result.error.empty()) return;
  fresh_[index] = true;
  if (result.error.empty()) {
    log_info("{}/{} {}: {:.1f} s", index + 1, plan_.runs.size(), run.label, result.seconds);
  } else {
    log_warning("{}/{} {}: {}", index + 1, plan_.runs.size(), run.label, result.error);
  }
  results_[index] = std::move(result);
}

void ReproduceRunner::run() {
  const InterruptGuard guard;
  for (size_t i = 0; i < plan_.runs.size() && !interrupted(); ++i) {
    if (!results_[i]) run_one(i);
  }
  if (interrupted()) {
    log_warning("interrupted: {} of {} runs are done; the same command {}does the rest",
                plan_.runs.size() - open_runs(), plan_.runs.size(), force_ ? "without --force " : "");
  }
}

}  // namespace focus
