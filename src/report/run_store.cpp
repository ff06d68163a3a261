#include "report/run_store.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "report/figures.h"

namespace focus {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

fs::path record_file(const PlannedRun& run) {
  return run.folder / "run.json";
}

/// Where a training of several stages keeps the first of them, whose adapter says that it is done.
constexpr const char* kFirstPhase = "centroids";

bool has_checkpoint(const fs::path& folder) {
  if (!fs::is_directory(folder)) return false;
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator(), [](const fs::directory_entry& entry) {
    return entry.path().filename().string().starts_with("checkpoint-");
  });
}

bool can_go_on(const fs::path& folder) {
  const fs::path first = folder / kFirstPhase;
  return has_checkpoint(folder) || has_checkpoint(first) || fs::exists(first / "adapter");
}

}  // namespace

std::optional<json> RunStore::record(const PlannedRun& run) const {
  if (!fs::exists(record_file(run))) return std::nullopt;
  json saved;
  try {
    saved = read_json_object(record_file(run));
  } catch (const Error&) {
    return std::nullopt;
  }
  const bool whole = saved.contains("key") && saved.contains("program") && saved["program"].is_string() &&
                     saved.contains("finished") && saved.contains("seconds") && saved["seconds"].is_number();
  if (!whole || saved["key"] != run.key || (!any_program_ && saved["program"] != program_)) return std::nullopt;
  return saved;
}

void RunStore::write_record(const PlannedRun& run, bool finished, double seconds) const {
  const json saved = {{"key", run.key},
                      {"arguments", run.arguments},
                      {"program", program_},
                      {"finished", finished},
                      {"seconds", seconds}};
  write_file_atomically(record_file(run), json_text(saved, 1) + "\n");
}

std::optional<RunResult> RunStore::find(const PlannedRun& run) const {
  const auto saved = record(run);
  if (!saved || (*saved)["finished"] != true || !fs::exists(output(run))) return std::nullopt;
  try {
    RunResult result;
    result.lines = parse_json_lines(read_file(output(run)), output(run).string());
    result.folder = run.folder;
    result.seconds = (*saved)["seconds"].get<double>();
    result.program = (*saved)["program"].get<std::string>();
    return result.lines.empty() ? std::nullopt : std::optional(std::move(result));
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool RunStore::begin(const PlannedRun& run) const {
  const auto saved = record(run);
  if (saved && (*saved)["finished"] == false && can_go_on(run.folder)) return true;
  if (fs::exists(run.folder)) discard_folder(run.folder);
  prepare_output_folder(run.folder, "--out");
  write_record(run, false, 0);
  return false;
}

double RunStore::seconds_so_far(const PlannedRun& run) const {
  const auto saved = record(run);
  return saved && (*saved)["finished"] == false ? (*saved)["seconds"].get<double>() : 0;
}

void RunStore::pause(const PlannedRun& run, double seconds) const {
  write_record(run, false, seconds);
}

RunResult RunStore::finish(const PlannedRun& run, double seconds) const {
  RunResult result;
  result.folder = run.folder;
  result.seconds = seconds;
  result.program = program_;
  result.lines = parse_json_lines(read_file(output(run)), output(run).string());
  require(!result.lines.empty(), "{}: the command printed nothing", output(run).string());
  write_record(run, true, seconds);
  return result;
}

std::string RunStore::last_error(const PlannedRun& run) const {
  const std::string mark = "focus: error: ";
  if (!fs::exists(log(run))) return "";
  const std::string text = read_file(log(run));
  const size_t at = text.rfind(mark);
  if (at == std::string::npos) return "";
  const size_t begin = at + mark.size();
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace focus
