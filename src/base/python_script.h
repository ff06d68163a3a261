#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace focus {

/// The file scripts/NAME of the source tree that the program was built in, or of the installation. Throws Error naming
/// both places when neither has it.
std::filesystem::path find_script(const std::string& name);

/// The same for any file or folder: its path in the source tree, and below share/focus of the installation.
std::filesystem::path find_shipped(const std::string& in_sources, const std::string& installed);

/// The command line that runs a script: $FOCUS_PYTHON, the virtual environment beside the scripts, or python3.
std::vector<std::string> python_command(const std::filesystem::path& script);

/// Runs a program with its output passed through and returns its exit status, 127 when it cannot be run. An interrupt
/// under an InterruptGuard is passed on to it as SIGINT. Throws Error when it was ended by a signal without one.
int run_and_wait(const std::vector<std::string>& command);

/// A program that answers every line written to its standard input by one line on its standard output. Its standard
/// error is ours. Ends with this object.
class LineServer {
 public:
  /// Throws Error when no process can be made; a program that cannot be run shows at the first ask().
  explicit LineServer(const std::vector<std::string>& command);
  ~LineServer();
  LineServer(const LineServer&) = delete;
  LineServer& operator=(const LineServer&) = delete;

  /// Throws Error when the program has ended.
  std::string ask(const std::string& line);

 private:
  std::string name_;
  pid_t child_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string rest_;  // Read beyond the last line.
};

}  // namespace focus
