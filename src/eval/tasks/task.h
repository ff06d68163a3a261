#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace focus {

enum class TaskKind {
  kChoice,        ///< Which of some continuations is likeliest.
  kContinuation,  ///< Whether the one continuation is what greedy decoding would write.
  kRolling,       ///< Likelihood of a whole text.
  kGeneration,    ///< Whether the generated text holds the answer.
};

/// One item of a benchmark. What the model reads is
///     [stretch of a book] preamble [worked examples] context,
/// and what is scored is the task's delimiter and a choice.
struct TaskItem {
  std::string group;                 ///< Scored apart and averaged over groups (BLiMP's paradigms); else empty.
  std::string preamble;              ///< Comes before the worked examples.
  std::string context;               ///< The item's own question.
  std::vector<std::string> choices;  ///< kContinuation and kRolling: one. kGeneration: the reference answer.
  int64_t gold = 0;                  ///< The right one of `choices`.
  int64_t words = 0;                 ///< kRolling: words of the text before it was cleaned.
  int64_t bytes = 0;                 ///< kRolling: bytes of it.
  double depth = -1;                 ///< Retrieval: where in the text the needle is, 0 to 1.
};

/// A benchmark with its items and how they are scored.
struct Task {
  std::string name;
  TaskKind kind = TaskKind::kChoice;
  bool acc_norm = false;                   ///< kChoice: also by likelihood a character.
  std::string delimiter = " ";             ///< Between a context and its continuation.
  std::string example_separator = "\n\n";  ///< After each worked example.
  std::vector<TaskItem> items;
  std::vector<TaskItem> examples;  ///< Fixed worked examples, used in order; empty: the other items serve.
  int64_t default_shots = 0;       ///< Worked examples unless asked otherwise.
  std::vector<std::string> stops;  ///< kGeneration: the text ends before any of these.
  int64_t max_new_tokens = 256;    ///< kGeneration.
};

/// Reads one benchmark out of a folder of benchmarks. Throws Error naming the file and line at fault.
using TaskReader = Task (*)(const std::filesystem::path& folder);

/// One line of the registry.
struct TaskEntry {
  std::string name;
  TaskReader read;
};

/// Benchmarks that are read from files, in the order of help.
const std::vector<TaskEntry>& file_tasks();

/// Whether `name` is one of them.
bool is_file_task(const std::string& name);

/// Reads the benchmark of that name. Throws Error.
Task read_task(const std::string& name, const std::filesystem::path& folder);

}  // namespace focus
