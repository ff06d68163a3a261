#include "train/metrics_log.h"

#include <sstream>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"

namespace focus {

MetricsLog::MetricsLog(const std::filesystem::path& file, int64_t steps_done) : file_(file) {
  std::string kept;
  if (steps_done > 0 && std::filesystem::exists(file)) {
    std::istringstream lines(read_file(file));
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json value = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!value.is_object() || value.value("step", int64_t{0}) > steps_done) continue;
      kept += line + "\n";
      kept_.push_back(value);
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
