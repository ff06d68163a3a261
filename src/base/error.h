#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace focus {

/// A run that cannot go on: one line that says what, where and what was expected. The command line exits with 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A request that makes no sense as given (unknown flag, value out of range). The command line exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws UsageError with a formatted message.
template <typename... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error with a formatted message unless `ok`.
template <typename... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// The candidate nearest to `word` by edit distance if it is near enough to be a likely typing slip, else "".
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace focus
