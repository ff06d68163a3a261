#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "attention/method.h"
#include "eval/statistics.h"
#include "eval/tasks/runner.h"

namespace focus {

/// Collects figures item by item and makes the scores of them.
class TaskScores {
 public:
  explicit TaskScores(const Task& task) : task_(task) {}

  void begin_item(const std::string& group, int64_t tokens, bool truncated);
  /// One figure of the present item.
  void add(const std::string& name, double value);
  void end_item(nlohmann::json record);
  void set_pairs(const PairCount& pairs) { pairs_ = pairs; }

  /// Scores, records and the line for a reader.
  TaskResult result(int64_t shots, int64_t prefix_tokens, int64_t context);

 private:
  /// The figures of one group by name, in the order of items.
  using Columns = std::map<std::string, std::vector<double>>;

  /// Over all items, or the plain mean over groups.
  MeanError score(const std::string& name) const;
  void put(nlohmann::json& summary, const std::string& name, const std::string& error_name, const MeanError& score);
  void put_groups(nlohmann::json& summary) const;
  void put_depths(nlohmann::json& summary) const;
  void put_perplexities(nlohmann::json& summary);

  const Task& task_;
  std::map<std::string, Columns> groups_;
  Columns* group_ = nullptr;
  std::vector<nlohmann::json> records_;
  int64_t truncated_ = 0;
  bool item_truncated_ = false;
  std::vector<double> tokens_;
  PairCount pairs_;
  std::string line_;
};

}  // namespace focus
