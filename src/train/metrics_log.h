#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace focus {

/// metrics.jsonl: one JSON object a step, flushed line by line.
class MetricsLog {
 public:
  /// Opens `file`; lines of steps beyond `steps_done`, and a last line cut short, are dropped first (0: starts anew).
  MetricsLog(const std::filesystem::path& file, int64_t steps_done);
  /// The lines kept on opening.
  const std::vector<nlohmann::json>& kept() const { return kept_; }
  /// Throws Error if the line cannot be written.
  void write(const nlohmann::json& line);

 private:
  std::filesystem::path file_;
  std::vector<nlohmann::json> kept_;
  std::ofstream stream_;
};

}  // namespace focus
