#include "base/progress.h"

#include <cmath>

#include "base/log.h"

namespace focus {

namespace {

constexpr std::chrono::milliseconds kTerminalInterval{100};
constexpr std::chrono::seconds kLogInterval{10};

std::string format_rate(double rate, const std::string& unit) {
  if (rate >= 100) return fmt::format("{:.0f} {}/s", rate, unit);
  if (rate >= 1) return fmt::format("{:.1f} {}/s", rate, unit);
  return fmt::format("{:.2g} {}/s", rate, unit);
}

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(seconds, 0.0)));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

Progress::Progress(std::string label, int64_t total, std::string unit, int64_t start)
    : label_(std::move(label)),
      total_(total),
      unit_(std::move(unit)),
      start_(start),
      done_(start),
      began_(Clock::now()),
      shown_(began_) {}

Progress::~Progress() {
  draw_status_line("");
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - began_).count();
}

void Progress::set(int64_t done) {
  done_ = done;
  if (log_level() > LogLevel::kInfo) return;
  const Clock::time_point now = Clock::now();
  const bool terminal = stderr_is_terminal();
  if (now - shown_ < (terminal ? Clock::duration(kTerminalInterval) : Clock::duration(kLogInterval))) return;
  shown_ = now;
  const std::string line = text(label_, done_, total_, start_, seconds(), unit_, note_);
  if (terminal) {
    draw_status_line(line);
  } else {
    log_line(LogLevel::kInfo, line);
  }
}

std::string Progress::text(const std::string& label, int64_t done, int64_t total, int64_t start, double seconds,
                           const std::string& unit, const std::string& note) {
  std::string line =
      total > 0 ? fmt::format("{} {}/{} {}", label, done, total, unit) : fmt::format("{} {} {}", label, done, unit);
  if (done > start && seconds > 0) {
    const double rate = static_cast<double>(done - start) / seconds;
    line += ", " + format_rate(rate, unit);
    if (total > done) line += fmt::format(", {} left", format_duration(static_cast<double>(total - done) / rate));
  }
  if (!note.empty()) line += ", " + note;
  return line;
}

}  // namespace focus
