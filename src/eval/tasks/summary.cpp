#include "eval/tasks/summary.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace focus {

void TaskScores::begin_item(const std::string& group, int64_t tokens, bool truncated) {
  group_ = &groups_[group];
  tokens_.push_back(static_cast<double>(tokens));
  item_truncated_ = truncated;
  truncated_ += truncated;
}

void TaskScores::add(const std::string& name, double value) {
  (*group_)[name].push_back(value);
}

void TaskScores::end_item(nlohmann::json record) {
  record["tokens"] = static_cast<int64_t>(tokens_.back());
  if (item_truncated_) record["truncated"] = true;
  records_.push_back(std::move(record));
}

MeanError TaskScores::score(const std::string& name) const {
  MeanError all;
  for (const auto& [group, columns] : groups_) {
    const MeanError own = mean_error(columns.at(name));
    all.mean += own.mean / static_cast<double>(groups_.size());
    all.error += own.error * own.error;
  }
  all.error = std::sqrt(all.error) / static_cast<double>(groups_.size());
  return all;
}

void TaskScores::put(nlohmann::json& summary, const std::string& name, const std::string& error_name,
                     const MeanError& score) {
  summary[name] = score.mean;
  summary[error_name] = score.error;
  line_ += fmt::format("{}{} {:.4f}{}", line_.empty() ? "" : ", ", name, score.mean, error_text(score.error));
}

void TaskScores::put_groups(nlohmann::json& summary) const {
  if (groups_.size() == 1 && groups_.begin()->first.empty()) return;
  for (const auto& [group, columns] : groups_) {
    const MeanError own = mean_error(columns.at("acc"));
    summary["groups"][group] = {{"acc", own.mean}, {"stderr", own.error}, {"n", columns.at("acc").size()}};
  }
}

void TaskScores::put_depths(nlohmann::json& summary) const {
  const Columns& columns = groups_.begin()->second;
  if (!columns.contains("depth")) return;
  constexpr size_t kParts = 5;
  std::vector<std::vector<double>> parts(kParts);
  for (size_t i = 0; i < columns.at("depth").size(); ++i) {
    const auto part = static_cast<size_t>(columns.at("depth")[i] * kParts);
    parts[std::min(part, kParts - 1)].push_back(columns.at("acc")[i]);
  }
  for (size_t part = 0; part < kParts; ++part) {
    if (parts[part].empty()) continue;
    const MeanError own = mean_error(parts[part]);
    summary["by_depth"].push_back({{"begin", static_cast<double>(part) / kParts},
                                   {"end", static_cast<double>(part + 1) / kParts},
                                   {"acc", own.mean},
                                   {"stderr", own.error},
                                   {"n", parts[part].size()}});
  }
}

void TaskScores::put_perplexities(nlohmann::json& summary) {
  const Columns& columns = groups_.begin()->second;
  // The standard error of exp(-x) is that of x times exp(-x), to first order.
  if (task_.kind == TaskKind::kContinuation) {
    const MeanError mean = score("log_likelihood");
    put(summary, "perplexity", "perplexity_stderr", {std::exp(-mean.mean), std::exp(-mean.mean) * mean.error});
  }
  if (task_.kind == TaskKind::kRolling) {
    const MeanError word = ratio_error(columns.at("log_likelihood"), columns.at("words"));
    const MeanError byte = ratio_error(columns.at("log_likelihood"), columns.at("bytes"));
    put(summary, "word_perplexity", "word_perplexity_stderr",
        {std::exp(-word.mean), std::exp(-word.mean) * word.error});
    put(summary, "byte_perplexity", "byte_perplexity_stderr",
        {std::exp(-byte.mean), std::exp(-byte.mean) * byte.error});
    put(summary, "bits_per_byte", "bits_per_byte_stderr", {-byte.mean / std::log(2.0), byte.error / std::log(2.0)});
  }
}

TaskResult TaskScores::result(int64_t shots, int64_t prefix_tokens, int64_t context) {
  nlohmann::json summary = {{"n", std::ssize(records_)},
                            {"shots", shots},
                            {"prefix_tokens", prefix_tokens},
                            {"context", context},
                            {"truncated", truncated_},
                            {"tokens_mean", mean_error(tokens_).mean},
                            {"tokens_max", *std::max_element(tokens_.begin(), tokens_.end())}};
  const Columns& columns = groups_.begin()->second;
  if (columns.contains("acc")) put(summary, "acc", "stderr", score("acc"));
  for (const char* name : {"acc_norm", "flexible", "gold_log_likelihood"}) {
    if (columns.contains(name)) put(summary, name, std::string(name) + "_stderr", score(name));
  }
  put_perplexities(summary);
  put_groups(summary);
  put_depths(summary);
  const double kept = pairs_.causal > 0 ? static_cast<double>(pairs_.kept) / static_cast<double>(pairs_.causal) : 1.0;
  summary["pairs_kept"] = kept;
  line_ += fmt::format(" ({} items, {:.0f} tokens on average, {:.2f}% of pairs", records_.size(),
                       mean_error(tokens_).mean, 100 * kept);
  if (truncated_ > 0) line_ += fmt::format(", {} cut to {} tokens", truncated_, context);
  line_ += ')';
  return {std::move(summary), std::move(records_), std::move(line_)};
}

}  // namespace focus
