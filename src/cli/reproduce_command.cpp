#include "cli/reproduce_command.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <map>

#include "base/build_info.h"
#include "base/child_process.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/python_script.h"
#include "bench/peaks.h"
#include "cli/output.h"
#include "cli/reproduce_runner.h"
#include "report/content_hash.h"
#include "report/document.h"
#include "report/results_page.h"

namespace focus {

namespace fs = std::filesystem;

namespace {

constexpr const char* kAll = "all";
constexpr const char* kCommon = "common";

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &utc)};
}

/// Version and commit; of sources that were changed since the commit also what the program consists of.
std::string program_name() {
  std::string name = fmt::format("{} (commit {}", version(), build_commit());
  const std::string commit = build_commit();
  if (commit.ends_with("-dirty") || commit == "unknown") {
    const fs::path program = own_program(), library = program.parent_path() / "../lib/libfocus.so";
    name += ", " + path_hash(program);
    if (fs::exists(library)) name += path_hash(fs::canonical(library));
  }
  return name + ")";
}

class ReproduceCommand : public Command {
 public:
  void declare(OptionTable& table) override {
    common_.declare(table, kOutFlag);
    table.section("Tables");
    table.add_positional("name", &names_, "tables of the paper by their recipes (t1, t7, longctx ...), or all")
        .required();
    table
        .add("scale", &scale_,
             "quick: minutes on a model in the repository; small: SmolLM2-135M, an hour or two on two cores; full: the "
             "paper's own models")
        .one_of(kScales);
    table.add("seeds", &repetitions_, "repetitions with other seeds of what is random").at_least(1).at_most(100);
    table.add("model", &model_, "model in place of the scale's own; the same as --set model=DIR").value_name("DIR");
    table.add("set", &set_, "give a recipe's variable another value (docs/formats.md)")
        .value_name("NAME=VALUE")
        .repeatable();
    table.add("recipes", &recipes_, "folder of recipes").value_name("DIR").default_text("those of the program");
    table.add("force", &force_, "run again what has finished before");
    table.add("any-commit", &any_commit_, "take finished runs of other commits of this program too");
    table.add("dry-run", &dry_run_, "print what would be run and how long it may take");
  }

  int run(const RunContext& run) override {
    const fs::path folder = fs::absolute(recipes_.empty() ? find_shipped("recipes", "recipes") : recipes_);
    read_recipes(folder);
    const fs::path out = fs::absolute(common_.out.value_or("reproduce-out")).lexically_normal();
    root_ = fs::canonical(folder).parent_path();
    runs_ = out / "runs";
    const Plan plan = make_plan(chosen_, settings(folder, run));
    check_missing(plan);
    check_given(plan);
    check_flags(plan);
    program_ = program_name();
    const RunStore store(program_, any_commit_);
    std::optional<FolderLock> lock;
    if (!dry_run_) {
      prepare_output_folder(out, "--out");
      lock.emplace(out, "--out");
    }
    ReproduceRunner runner(plan, store, root_, force_);
    if (dry_run_) return print_plan(plan, runner);
    runner.run();
    const ReportDocument document = make_document(plan, runner, run);
    write_file_atomically(out / "results.json", json_text(document_json(document), 1) + "\n");
    write_file_atomically(out / "results.md", markdown_document(document));
    write_file_atomically(out / "results.html", results_page(document));
    if (common_.json) {
      write_json_line(document_json(document));
    } else {
      write_output(markdown_tables(document));
    }
    return runner.open_runs() > 0 || runner.any_failed() ? 1 : 0;
  }

 private:
  void read_recipes(const fs::path& folder) {
    require(fs::is_directory(folder), "--recipes {}: no such folder", folder.string());
    std::vector<std::string> known;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() == ".toml" && entry.path().stem() != kCommon) known.push_back(entry.path().stem());
    }
    std::sort(known.begin(), known.end(), [](const std::string& a, const std::string& b) {
      return std::pair(a.size(), a) < std::pair(b.size(), b);
    });
    std::vector<std::string> names;
    for (const std::string& name : names_) {
      if (name == kAll) {
        names = known;
        break;
      }
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        fail_usage("no recipe {}; known: {}, all", name, fmt::join(known, ", "));
      }
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    for (const std::string& name : names) {
      const fs::path file = folder / (name + ".toml");
      chosen_.push_back(parse_recipe(read_file(file), name, file.filename().string()));
    }
  }

  PlanSettings settings(const fs::path& folder, const RunContext& run) {
    PlanSettings settings;
    settings.scale = scale_;
    const fs::path common = folder / (std::string(kCommon) + ".toml");
    if (fs::exists(common)) settings.common = parse_common_recipe(read_file(common), common.filename().string());
    for (const std::string& text : set_) {
      const size_t equal = text.find('=');
      if (equal == std::string::npos || equal == 0) fail_usage("--set {}: expected NAME=VALUE", text);
      given_[text.substr(0, equal)] = text.substr(equal + 1);
    }
    if (model_) given_["model"] = model_->string();
    settings.given = given_;
    for (auto& [name, value] : settings.given) {
      if (!value.empty() && fs::exists(value)) value = fs::absolute(value).lexically_normal().string();
    }
    settings.repetitions = repetitions_;
    settings.root = root_;
    settings.runs = runs_;
    settings.flags = {"--threads", std::to_string(run.threads)};
    if (run.options.changed("device")) settings.flags.insert(settings.flags.end(), {"--device", common_.device});
    settings.version = version();
    settings.machine = cpu_name();
    settings.fingerprint = [hashes = std::map<fs::path, std::string>{}](const fs::path& path) mutable {
      std::string& hash = hashes[path];
      if (hash.empty()) hash = path_hash(path);
      return hash;
    };
    return settings;
  }

  /// A table none of whose rows can be run is no result.
  void check_missing(const Plan& plan) const {
    for (size_t r = 0; r < chosen_.size(); ++r) {
      std::string missing;
      bool any = false;
      for (const PlannedRow& row : plan.rows[r]) {
        any = any || (!row.sources.empty() && !row.sources.front().empty());
        if (missing.empty() && row.missing.starts_with("needs")) missing = row.missing;
      }
      if (!any) {
        fail_usage("{}: nothing to run at scale {}{}", chosen_[r].name, scale_, missing.empty() ? "" : ": " + missing);
      }
    }
  }

  /// What nothing depends on would stand in the report as if it had been in force.
  void check_given(const Plan& plan) const {
    for (const auto& [name, value] : given_) {
      if (plan.used.contains(name)) continue;
      std::vector<std::string> tables;
      for (const Recipe& recipe : chosen_) tables.push_back(recipe.name);
      const std::string flag = name == "model" && model_ ? "--model" : fmt::format("--set {}=", name);
      fail_usage("{}{}: no row that is run of {} at scale {} depends on it", flag, value, fmt::join(tables, ", "),
                 scale_);
    }
  }

  int print_plan(const Plan& plan, const ReproduceRunner& runner) const {
    nlohmann::json runs = nlohmann::json::array();
    std::string text;
    double seconds = 0;
    size_t unknown = 0;
    for (size_t i = 0; i < plan.runs.size(); ++i) {
      const PlannedRun& planned = plan.runs[i];
      const bool done = runner.results()[i].has_value();
      const std::string command = show_command(planned.arguments, root_, runs_);
      if (!done) seconds += planned.seconds;
      if (!done && planned.seconds == 0) ++unknown;
      const std::string cost = done                  ? "done"
                               : planned.seconds > 0 ? "about " + format_duration(planned.seconds)
                                                     : "time unknown";
      text += fmt::format("{}: {}\n    {}\n", planned.label, cost, command);
      runs.push_back({{"key", planned.key},
                      {"label", planned.label},
                      {"command", command},
                      {"seconds", planned.seconds > 0 ? nlohmann::json(planned.seconds) : nlohmann::json()},
                      {"done", done}});
    }
    if (common_.json) {
      write_json_line({{"runs", runs}, {"seconds", seconds}, {"unknown", unknown}});
      return 0;
    }
    text += fmt::format("{} runs, {} done; about {} left{}\n", plan.runs.size(), plan.runs.size() - runner.open_runs(),
                        format_duration(seconds),
                        unknown > 0 ? fmt::format(", and {} runs of unknown length", unknown) : "");
    write_output(text);
    return 0;
  }

  ReportDocument make_document(const Plan& plan, const ReproduceRunner& runner, const RunContext& run) const {
    ReportDocument document;
    document.program = program_;
    document.date = today();
    document.machine = fmt::format("{}, {} {}", cpu_name(), run.threads, run.threads == 1 ? "thread" : "threads");
    document.scale = scale_;
    document.repetitions = repetitions_;
    document.given = given_;
    for (size_t r = 0; r < chosen_.size(); ++r) {
      document.tables.push_back(make_table(chosen_[r], plan.rows[r], plan, runner.results(), scale_));
    }
    for (size_t i = 0; i < plan.runs.size(); ++i) {
      const auto& result = runner.results()[i];
      if (!result) continue;
      document.runs.push_back({.key = plan.runs[i].key,
                               .command = show_command(plan.runs[i].arguments, root_, runs_),
                               .seconds = result->seconds,
                               .program = result->program,
                               .error = result->error});
    }
    return document;
  }

  std::vector<std::string> names_, set_;
  std::string scale_ = "quick";
  int64_t repetitions_ = 1;
  std::optional<fs::path> model_;
  fs::path recipes_;
  bool force_ = false, any_commit_ = false, dry_run_ = false;

  std::vector<Recipe> chosen_;
  TextMap given_;
  fs::path root_, runs_;
  std::string program_;
};

}  // namespace

std::unique_ptr<Command> make_reproduce_command() {
  return std::make_unique<ReproduceCommand>();
}

}  // namespace focus
