#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attention/method.h"
#include "base/run_options.h"
#include "cli/session.h"
#include "data/token_windows.h"
#include "eval/copy_task.h"
#include "eval/tasks/prompts.h"
#include "eval/tasks/task.h"

namespace focus {

/// The tasks of `focus eval`: their flags, their data and their scores.
class EvalTasks {
 public:
  void declare(OptionTable& table);
  bool any() const { return !names_.empty(); }
  bool wanted(const std::string& name) const;

  /// Checks the flags against each other and reads the benchmarks, before any model is loaded. Throws UsageError, and
  /// Error for what cannot be read.
  void prepare(const OptionTable& table, const CommonOptions& common);
  /// Checks what depends on the model, reads the book of --prefix and makes the retrieval tasks. Throws UsageError and
  /// Error.
  void open(const Session& session, const CommonOptions& common);
  /// Text of the tasks for the leak probe where there is no --data.
  std::vector<Document> probe_documents(const Session& session) const;
  /// Runs the tasks in the order given and puts their scores in result["tasks"]; with --out writes a file for each that
  /// has one line an item. `documents` are those of --data. False when interrupted.
  bool run(const Session& session, AttentionMethod& method, const std::vector<Document>& documents,
           const CommonOptions& common, nlohmann::json& result);
  /// A line (name, scores) for each task that was run.
  const std::vector<std::pair<std::string, std::string>>& lines() const { return lines_; }

 private:
  bool run_copy(const Session& session, AttentionMethod& method, const std::vector<Document>& documents,
                nlohmann::json& result);
  bool run_benchmark(const Session& session, AttentionMethod& method, const Task& task, const CommonOptions& common,
                     nlohmann::json& result);

  std::vector<std::string> names_;
  std::optional<int64_t> limit_;
  CopyTaskOptions copy_;
  std::optional<std::filesystem::path> folder_;
  std::optional<int64_t> shots_;
  std::optional<int64_t> context_;
  int64_t prefix_tokens_ = 0;
  std::optional<std::filesystem::path> prefix_;
  int64_t keys_ = 4;
  std::optional<int64_t> needle_length_;

  std::vector<Task> benchmarks_;
  std::optional<BookText> book_;
  std::vector<std::pair<std::string, std::string>> lines_;
};

/// The longest document: the one that single-text measurements use.
const Document& longest(const std::vector<Document>& documents);

}  // namespace focus
