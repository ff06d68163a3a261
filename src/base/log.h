#pragma once

#include <fmt/format.h>

#include <string>

namespace focus {

enum class LogLevel { kDebug, kInfo, kWarning, kOff };

/// Lines below this level are dropped. The start value is kInfo; --verbose gives kDebug, --quiet kWarning.
void set_log_level(LogLevel level);
LogLevel log_level();

/// Writes one line to standard error, never to standard output; a status line on the terminal moves below it.
/// Thread-safe. A closed standard error is ignored.
void log_line(LogLevel level, const std::string& line);

template <typename... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::kDebug) log_line(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::kInfo) log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  if (log_level() <= LogLevel::kWarning) log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}

/// Whether standard error is a terminal that can redraw a line.
bool stderr_is_terminal();
/// Draws `text` (cut to the terminal's width) as the last line of the terminal in place of the former one; "" removes
/// it. Does nothing when standard error is no terminal or the level is above kInfo.
void draw_status_line(const std::string& text);

}  // namespace focus
