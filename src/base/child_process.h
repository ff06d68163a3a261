#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace focus {

/// How a program ended.
struct ChildExit {
  int status = 0;  ///< Its exit status, 127 when it could not be run; -1 when a signal ended it.
  int signal = 0;  ///< That signal.
};

/// Where a program runs and what becomes of its output.
struct ChildFiles {
  std::filesystem::path folder;         ///< Working folder.
  std::filesystem::path output, error;  ///< Files for standard output and standard error, made anew.
};

/// Runs a program and waits for it, calling `tick` about ten times a second. It reads nothing, and it is in a process
/// group of its own: a Ctrl-C on the terminal reaches this process only. While an InterruptGuard lives, an interrupt of
/// this process is passed on once, as SIGINT, and the program is given the time it needs to save and end. It gets
/// SIGTERM when this process dies. Throws Error when the files cannot be made or no process.
ChildExit run_child(const std::vector<std::string>& command, const ChildFiles& files,
                    const std::function<void()>& tick);

/// The program that this process runs.
std::filesystem::path own_program();

}  // namespace focus
