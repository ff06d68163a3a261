#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

namespace focus {

namespace {

std::atomic<LogLevel> level_now{LogLevel::kInfo};
std::mutex terminal_mutex;
std::string status_line;

spdlog::logger& logger() {
  static const std::unique_ptr<spdlog::logger> instance = [] {
    auto created = std::make_unique<spdlog::logger>("focus", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    created->set_pattern("%v");
    created->set_level(spdlog::level::trace);
    created->set_error_handler([](const std::string&) {});
    return created;
  }();
  return *instance;
}

size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

void write_status_line() {
  // Erased first: "\r" goes to the line's start, "ESC [K" clears to its end.
  std::fputs("\r\x1b[K", stderr);
  std::fputs(status_line.substr(0, terminal_columns() - 1).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

void set_log_level(LogLevel level) {
  level_now = level;
}

LogLevel log_level() {
  return level_now;
}

void log_line(LogLevel level, const std::string& line) {
  if (level < level_now) return;
  const std::lock_guard<std::mutex> lock(terminal_mutex);
  if (!status_line.empty()) std::fputs("\r\x1b[K", stderr);
  switch (level) {
    case LogLevel::kDebug:
      logger().debug("focus: debug: {}", line);
      break;
    case LogLevel::kWarning:
      logger().warn("focus: warning: {}", line);
      break;
    default:
      logger().info("{}", line);
  }
  if (!status_line.empty()) write_status_line();
}

bool stderr_is_terminal() {
  static const bool result = [] {
    const char* term = std::getenv("TERM");
    return isatty(STDERR_FILENO) != 0 && term != nullptr && std::string(term) != "dumb";
  }();
  return result;
}

void draw_status_line(const std::string& text) {
  if (!stderr_is_terminal() || level_now > LogLevel::kInfo) return;
  const std::lock_guard<std::mutex> lock(terminal_mutex);
  if (text.empty() && status_line.empty()) return;
  status_line = text;
  write_status_line();
}

}  // namespace focus
