#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attention/method.h"
#include "eval/tasks/prompts.h"
#include "eval/tasks/task.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace focus {

struct TaskOptions {
  std::optional<int64_t> limit;    ///< The first items of each group only.
  std::optional<int64_t> shots;    ///< Absent: the task's own number.
  int64_t prefix_tokens = 0;       ///< Book text before each item.
  const BookText* book = nullptr;  ///< Where it comes from.
  uint64_t seed = 0;
  std::optional<int64_t> context;    ///< Most tokens that the model is given; absent: its own context.
  std::optional<int32_t> prefix_id;  ///< Token before a text without context, see RequestEncoder.
  std::vector<int64_t> stop_ids;     ///< Tokens that end a generated text.
};

struct TaskResult {
  nlohmann::json summary;             ///< Scores with standard errors (docs/formats.md).
  std::vector<nlohmann::json> items;  ///< One object an item, in order.
  std::string line;                   ///< The scores for a reader.
};

/// Runs a benchmark. `progress(done, total)` counts texts scored or generated, with a total of 0 while the texts are
/// made, and ends the run by returning false; the result is then empty. Throws Error, naming the item where one is at
/// fault, and UsageError (prefix or examples for a task that has no use for them).
std::optional<TaskResult> run_task(const CausalLM& model, AttentionMethod& method, const Tokenizer& tokenizer,
                                   const Task& task, const TaskOptions& options,
                                   const std::function<bool(int64_t, int64_t)>& progress = {});

}  // namespace focus
