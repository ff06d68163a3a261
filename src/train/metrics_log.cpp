#include "train/metrics_log.h"

#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "base/json_text.h"

namespace focus {

namespace {

/// The object of a line; nullopt for what is none, such as the half of a line that a kill left.
std::optional<nlohmann::json> parse_line(const std::string& line, const std::string& file) {
  try {
    nlohmann::json value = parse_json(line, file);
    const bool whole = value.is_object() && (!value.contains("step") || value["step"].is_number_integer());
    return whole ? std::optional(std::move(value)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& file, int64_t steps_done) : file_(file) {
  std::string kept;
  if (steps_done > 0 && std::filesystem::exists(file)) {
    std::istringstream lines(read_file(file));
    for (std::string line; std::getline(lines, line);) {
      const std::optional<nlohmann::json> value = parse_line(line, file.string());
      if (!value || value->value("step", int64_t{0}) > steps_done) continue;
      kept += line + "\n";
      kept_.push_back(*value);
    }
  }
  write_file_atomically(file, kept);
  stream_.open(file, std::ios::app);
  require(stream_.is_open(), "{}: cannot be written", file.string());
}

void MetricsLog::write(const nlohmann::json& line) {
  stream_ << json_text(line) << '\n' << std::flush;
  require(stream_.good(), "{}: cannot be written (is the disk full?)", file_.string());
}

}  // namespace focus
