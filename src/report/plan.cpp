#include "report/plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "report/content_hash.h"

namespace focus {

namespace fs = std::filesystem;

namespace {

/// Flags whose values are files and folders that a result depends on.
const std::set<std::string> kPathFlags = {"--model",      "--adapter",         "--data",
                                          "--tasks-data", "--eval-data",       "--prefix",
                                          "--lora",       "--compare-adapter", "--config"};
/// Commands with --out.
const std::set<std::string> kWithOut = {"train", "eval", "inspect"};
/// The command whose figures are times, and the figure of others that is one.
constexpr const char *kTimed = "bench", *kTime = "seconds";
/// What a trained run leaves in its folder.
const std::set<std::string> kOutputs = {"out", "adapter", "model"};
constexpr int kDeepest = 20;

/// A variable without a value that only the user can give.
struct MissingVariable {
  std::string name, what;
};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == ' ' || c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

/// The names in braces, in their order; an open brace ends them.
std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
    const size_t close = text.find('}', open);
    if (close == std::string::npos) break;
    names.push_back(text.substr(open + 1, close - open - 1));
  }
  return names;
}

std::string replace_all(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

/// Flags as they are declared, apart from their values: --tasks_data=x is --tasks-data x.
std::vector<std::string> one_word_each(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--")) {
      words.push_back(argument);
      continue;
    }
    const size_t equal = argument.find('=');
    std::string flag = argument.substr(0, equal);
    std::replace(flag.begin(), flag.end(), '_', '-');
    words.push_back(std::move(flag));
    if (equal != std::string::npos) words.push_back(argument.substr(equal + 1));
  }
  return words;
}

/// Plans the runs of one recipe, row by row.
class Planner {
 public:
  Planner(const PlanSettings& settings, const Recipe& recipe, std::map<std::string, size_t>& by_key, Plan& plan)
      : settings_(settings), recipe_(recipe), by_key_(by_key), plan_(plan) {}

  PlannedRow plan_row(const RecipeRow& row) {
    row_ = &row;
    used_.clear();
    const size_t before = plan_.runs.size();
    PlannedRow planned;
    planned.title = row.title;
    if (!in_scale(row.scales, settings_.scale)) {
      planned.missing = fmt::format("not part of scale {}", settings_.scale);
      return planned;
    }
    try {
      planned.title = expand(row.title);
      for (repetition_ = 0; repetition_ < settings_.repetitions; ++repetition_) {
        std::map<std::string, size_t> sources;
        for (const RecipeColumn& column : recipe_.columns) {
          if (column.value.empty()) continue;
          const auto other = row.from.find(column.key);
          if (other == row.from.end() && column.only_from) continue;
          const std::string& run = other != row.from.end() ? other->second : row.run;
          if (!run.empty()) sources[column.key] = plan_run(run);
        }
        planned.sources.push_back(std::move(sources));
      }
      for (const RecipeColumn& column : recipe_.columns) {
        if (!planned.sources.front().contains(column.key)) continue;
        planned.values[column.key] = expand(column.value);
        planned.noise[column.key] = expand(column.noise.path);
        planned.high[column.key] = expand(column.noise.high);
        planned.weights[column.key] = expand(column.noise.weights);
      }
      plan_.used.insert(used_.begin(), used_.end());
    } catch (const MissingVariable& missing) {
      for (size_t run = before; run < plan_.runs.size(); ++run) by_key_.erase(plan_.runs[run].key);
      plan_.runs.resize(before);
      open_.clear();
      after_.clear();
      planned.sources.clear();
      planned.missing = fmt::format("needs --set {}=...: {}", missing.name, missing.what);
    }
    return planned;
  }

 private:
  [[noreturn]] void fail_in(const std::string& message) const {
    fail("recipe {}, row '{}': {}", recipe_.name, row_->id, message);
  }

  size_t plan_run(const std::string& name) {
    if (std::find(open_.begin(), open_.end(), name) != open_.end()) {
      fail_in(fmt::format("run {} needs itself: {}", name, fmt::join(open_, ", ")));
    }
    open_.push_back(name);
    std::vector<size_t> outer;
    std::swap(outer, after_);
    PlannedRun run;
    run.arguments = split_command(expand(recipe_.runs.at(name)));
    run.after = std::move(after_);
    after_ = std::move(outer);
    open_.pop_back();
    if (run.arguments.empty()) fail_in(fmt::format("run {} is empty", name));
    run.arguments.insert(run.arguments.end(), settings_.flags.begin(), settings_.flags.end());
    run.key = key_of(run);
    const auto known = by_key_.find(run.key);
    if (known != by_key_.end()) return known->second;
    run.label = fmt::format("{}: {} ({}{})", recipe_.name, name, row_->title,
                            repetition_ > 0 ? fmt::format(", repetition {}", repetition_ + 1) : "");
    run.folder = settings_.runs / run.key;
    if (kWithOut.contains(run.arguments.front())) {
      run.arguments.emplace_back("--out");
      run.arguments.push_back(run.folder.string());
    }
    run.arguments.emplace_back("--json");
    const auto scale = recipe_.seconds.find(settings_.scale);
    if (scale != recipe_.seconds.end() && scale->second.contains(name)) run.seconds = scale->second.at(name);
    by_key_[run.key] = plan_.runs.size();
    plan_.runs.push_back(std::move(run));
    return plan_.runs.size() - 1;
  }

  /// Outputs of other runs count by their keys, files by their content.
  std::string key_of(const PlannedRun& run) const {
    ContentHash hash;
    hash.add(settings_.version);
    const bool shows_time = std::any_of(recipe_.columns.begin(), recipe_.columns.end(),
                                        [](const RecipeColumn& column) { return column.value == kTime; });
    if (run.arguments.front() == kTimed || shows_time) hash.add(settings_.machine);
    std::string flag;
    for (const std::string& argument : one_word_each(run.arguments)) {
      const std::string outside = replace_all(argument, settings_.runs.string(), "");
      hash.add(kPathFlags.contains(flag) && outside == argument ? file_hash(flag, argument) : outside);
      flag = argument;
    }
    return fmt::format("{}-{}", run.arguments.front(), hash.hex());
  }

  std::string file_hash(const std::string& flag, const std::string& path) const {
    try {
      return settings_.fingerprint(settings_.root / path);
    } catch (const Error& error) {
      fail_in(fmt::format("{} {}", flag, error.what()));
    }
  }

  std::optional<std::string> variable(const std::string& name) {
    const auto in = [&](const TextMap& texts) -> std::optional<std::string> {
      const auto found = texts.find(name);
      return found == texts.end() ? std::nullopt : std::optional(found->second);
    };
    if (auto text = in(row_->set)) return text;
    if (auto text = in(settings_.given)) {
      used_.insert(name);
      return escaped(*text);
    }
    const auto text = preset(name);
    const std::string run = output_run(name);
    return text && !run.empty() && is_changed(recipe_.runs.at(run)) ? std::nullopt : text;
  }

  /// The recipes' own value.
  std::optional<std::string> preset(const std::string& name) const {
    for (const ScaledVariables* variables : {&recipe_.variables, &settings_.common.variables}) {
      for (const std::string& scale : {settings_.scale, std::string("vars")}) {
        const auto found = variables->find(scale);
        if (found == variables->end()) continue;
        const auto text = found->second.find(name);
        if (text != found->second.end()) return text->second;
      }
    }
    return std::nullopt;
  }

  /// Whether the user or the row decides about a variable that the text depends on, through outputs of runs too.
  bool is_changed(const std::string& text, int depth = 0) const {
    if (depth > kDeepest) return false;  // The same text fails where it is put in.
    for (const std::string& name : names_in(text)) {
      if (row_->set.contains(name) || settings_.given.contains(name)) return true;
      const std::string run = output_run(name);
      const std::string within = run.empty() ? preset(name).value_or("") : recipe_.runs.at(run);
      if (is_changed(within, depth + 1)) return true;
    }
    return false;
  }

  /// The run whose output {name} is, RUN of RUN.out and the like; "" when it is none.
  std::string output_run(const std::string& name) const {
    const size_t dot = name.rfind('.');
    const bool known = dot != std::string::npos && recipe_.runs.contains(name.substr(0, dot)) &&
                       kOutputs.contains(name.substr(dot + 1));
    return known ? name.substr(0, dot) : "";
  }

  /// {RUN.out} and the like, after the run was planned.
  std::optional<std::string> output(const std::string& name) {
    const std::string producer = output_run(name);
    if (producer.empty()) return std::nullopt;
    const size_t run = plan_run(producer);
    after_.push_back(run);
    const fs::path& folder = plan_.runs[run].folder;
    const std::string part = name.substr(producer.size() + 1);
    return escaped((part == "out" ? folder : folder / part).string());
  }

  std::string expand(const std::string& text, int depth = 0) {
    if (depth > kDeepest) fail_in(fmt::format("'{}' stands for itself", text));
    std::string result;
    size_t begin = 0;
    for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', begin)) {
      const size_t close = text.find('}', open);
      if (close == std::string::npos) fail_in(fmt::format("'{}': expected }}", text));
      const std::string name = text.substr(open + 1, close - open - 1);
      result += text.substr(begin, open - begin);
      begin = close + 1;
      if (name == "seed") {
        result += std::to_string(repetition_);
      } else if (const auto value = variable(name)) {
        result += expand(*value, depth + 1);
      } else if (const auto folder = output(name)) {
        result += *folder;
      } else {
        for (const TextMap* needs : {&recipe_.needs, &settings_.common.needs}) {
          if (needs->contains(name)) throw MissingVariable{name, needs->at(name)};
        }
        fail_in(fmt::format("{{{}}} is neither a variable at scale {} nor an output of a run", name, settings_.scale));
      }
    }
    return result + text.substr(begin);
  }

  const PlanSettings& settings_;
  const Recipe& recipe_;
  std::map<std::string, size_t>& by_key_;
  Plan& plan_;
  const RecipeRow* row_ = nullptr;
  int64_t repetition_ = 0;
  std::set<std::string> used_;     // Variables of the user that this row depends on.
  std::vector<std::string> open_;  // Runs that are being planned.
  std::vector<size_t> after_;
};

}  // namespace

Plan make_plan(const std::vector<Recipe>& recipes, const PlanSettings& settings) {
  Plan plan;
  std::map<std::string, size_t> by_key;
  for (const Recipe& recipe : recipes) {
    Planner planner(settings, recipe, by_key, plan);
    plan.rows.emplace_back();
    for (const RecipeRow& row : recipe.rows) plan.rows.back().push_back(planner.plan_row(row));
  }
  return plan;
}

std::vector<std::string> split_command(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, started = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\' && i + 1 < line.size()) {
      word += line[++i];
      started = true;
    } else if (c == '"') {
      quoted = !quoted;
      started = true;
    } else if (!quoted && (c == ' ' || c == '\n' || c == '\t')) {
      if (started) words.push_back(std::move(word));
      word.clear();
      started = false;
    } else {
      word += c;
      started = true;
    }
  }
  require(!quoted, "command '{}': a quote is not closed", line);
  if (started) words.push_back(std::move(word));
  return words;
}

std::string show_command(const std::vector<std::string>& arguments, const fs::path& root, const fs::path& runs) {
  std::string text = "focus";
  for (const std::string& argument : arguments) {
    std::string shown = argument;
    if (!argument.empty() && argument.front() == '/') {
      const fs::path below = fs::path(argument).lexically_relative(runs);
      const fs::path in_root = fs::path(argument).lexically_relative(root);
      if (!below.empty() && !below.string().starts_with("..")) {
        shown = (fs::path("runs") / below).string();
      } else if (!in_root.empty() && !in_root.string().starts_with("..")) {
        shown = in_root.string();
      } else {
        shown = fs::path(argument).filename().string();
      }
    }
    const bool plain = !shown.empty() && shown.find_first_of(" \"'\\$*()[]") == std::string::npos;
    text += plain ? " " + shown : fmt::format(" \"{}\"", shown);
  }
  return text;
}

}  // namespace focus
