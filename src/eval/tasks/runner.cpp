#include "eval/tasks/runner.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/python_text.h"
#include "eval/tasks/generation.h"
#include "eval/tasks/requests.h"
#include "eval/tasks/summary.h"

namespace focus {

namespace {

using Progress = std::function<bool(int64_t, int64_t)>;

/// Indices of the first `limit` items of each group.
std::vector<size_t> chosen_items(const Task& task, const std::optional<int64_t>& limit) {
  std::map<std::string, int64_t> taken;
  std::vector<size_t> chosen;
  for (size_t i = 0; i < task.items.size(); ++i) {
    if (!limit || taken[task.items[i].group]++ < *limit) chosen.push_back(i);
  }
  return chosen;
}

/// Everything that is asked of the model about the chosen items; `first[i]` is the first request of chosen item i, the
/// last of them the end. Empty when stopped.
struct Asked {
  std::vector<LikelihoodRequest> requests;
  std::vector<size_t> first;
};

Asked ask(const Task& task, const std::vector<size_t>& chosen, const PromptOptions& prompts, const BookText* book,
          const RequestEncoder& encoder, const Progress& progress) {
  Asked asked;
  for (const size_t i : chosen) {
    if (progress && !progress(0, 0)) return {};
    const TaskItem& item = task.items[i];
    asked.first.push_back(asked.requests.size());
    try {
      if (task.kind == TaskKind::kRolling) {
        for (LikelihoodRequest& piece : encoder.rolling(item.choices[0])) asked.requests.push_back(std::move(piece));
        continue;
      }
      const std::string prompt = item_prompt(task, i, prompts, book);
      for (const std::string& choice : item.choices) {
        asked.requests.push_back(encoder.pair(prompt, task.delimiter + choice));
        asked.requests.back().item = static_cast<int64_t>(i);
      }
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      fail("{} item {}: {}", task.name, i, error.what());
    }
  }
  asked.first.push_back(asked.requests.size());
  return asked;
}

nlohmann::json item_record(const Task& task, size_t index) {
  nlohmann::json record = {{"index", index}};
  if (!task.items[index].group.empty()) record["group"] = task.items[index].group;
  return record;
}

void score_choices(const TaskItem& item, const std::vector<Likelihood>& scores, bool acc_norm, nlohmann::json& record,
                   TaskScores& result) {
  std::vector<double> likelihoods, normalized;
  for (size_t c = 0; c < scores.size(); ++c) {
    likelihoods.push_back(scores[c].log_likelihood);
    normalized.push_back(scores[c].log_likelihood / static_cast<double>(character_count(item.choices[c])));
  }
  const auto right = [&](const std::vector<double>& values) {
    return std::max_element(values.begin(), values.end()) - values.begin() == item.gold;
  };
  record["log_likelihoods"] = likelihoods;
  record["gold"] = item.gold;
  record["acc"] = static_cast<int>(right(likelihoods));
  result.add("acc", right(likelihoods));
  if (acc_norm) {
    record["acc_norm"] = static_cast<int>(right(normalized));
    result.add("acc_norm", right(normalized));
  }
  result.add("gold_log_likelihood", likelihoods[static_cast<size_t>(item.gold)]);
}

void score_rolling(const TaskItem& item, const std::vector<Likelihood>& scores, nlohmann::json& record,
                   TaskScores& result) {
  double sum = 0;
  for (const Likelihood& score : scores) sum += score.log_likelihood;
  record["log_likelihood"] = sum;
  record["words"] = item.words;
  record["bytes"] = item.bytes;
  result.add("log_likelihood", sum);
  result.add("words", static_cast<double>(item.words));
  result.add("bytes", static_cast<double>(item.bytes));
}

void score_continuation(const TaskItem& item, const Likelihood& score, nlohmann::json& record, TaskScores& result) {
  record["log_likelihood"] = score.log_likelihood;
  record["acc"] = static_cast<int>(score.greedy);
  if (item.depth >= 0) record["depth"] = item.depth;
  result.add("acc", score.greedy);
  result.add("log_likelihood", score.log_likelihood);
  if (item.depth >= 0) result.add("depth", item.depth);
}

/// Scores of all kinds but generation; false when it was stopped.
bool run_likelihoods(const CausalLM& model, AttentionMethod& method, const Task& task,
                     const std::vector<size_t>& chosen, const PromptOptions& prompts, const BookText* book,
                     const RequestEncoder& encoder, const Progress& progress, TaskScores& result) {
  const Asked asked = ask(task, chosen, prompts, book, encoder, progress);
  if (asked.first.empty()) return false;
  const std::vector<Likelihood> scores = score_requests(model, method, asked.requests, progress);
  if (scores.empty()) return false;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const TaskItem& item = task.items[chosen[i]];
    nlohmann::json record = item_record(task, chosen[i]);
    const std::vector<Likelihood> own(scores.begin() + static_cast<std::ptrdiff_t>(asked.first[i]),
                                      scores.begin() + static_cast<std::ptrdiff_t>(asked.first[i + 1]));
    int64_t tokens = 0;
    bool truncated = false;
    for (size_t r = asked.first[i]; r < asked.first[i + 1]; ++r) {
      tokens = std::max(tokens, std::ssize(asked.requests[r].ids));
      truncated = truncated || asked.requests[r].truncated;
    }
    result.begin_item(item.group, tokens, truncated);
    if (task.kind == TaskKind::kChoice) score_choices(item, own, task.acc_norm, record, result);
    if (task.kind == TaskKind::kContinuation) score_continuation(item, own[0], record, result);
    if (task.kind == TaskKind::kRolling) score_rolling(item, own, record, result);
    result.end_item(std::move(record));
  }
  result.set_pairs(method.pairs());
  return true;
}

}  // namespace

std::optional<TaskResult> run_task(const CausalLM& model, AttentionMethod& method, const Tokenizer& tokenizer,
                                   const Task& task, const TaskOptions& options, const Progress& progress) {
  const std::vector<size_t> chosen = chosen_items(task, options.limit);
  PromptOptions prompts{options.shots.value_or(task.default_shots), options.prefix_tokens, options.seed};
  if (task.kind == TaskKind::kRolling && (prompts.shots > 0 || prompts.prefix_tokens > 0)) {
    fail_usage("{} is a running text: it takes no --shots and no --prefix-tokens", task.name);
  }
  const int64_t context = options.context.value_or(model.config().max_positions);
  const RequestEncoder encoder(tokenizer, options.prefix_id, context);
  method.reset_pairs();
  TaskScores scores(task);
  const bool finished =
      task.kind == TaskKind::kGeneration
          ? run_generation(model, method, tokenizer, task, chosen, prompts, options, encoder, progress, scores)
          : run_likelihoods(model, method, task, chosen, prompts, options.book, encoder, progress, scores);
  if (!finished) return std::nullopt;
  return scores.result(prompts.shots, options.prefix_tokens, context);
}

}  // namespace focus
