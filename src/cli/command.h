#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/run_options.h"

namespace focus {

/// What a command gets to run with.
struct RunContext {
  const OptionTable& options;  ///< Parsed; ask it what was given, and for the run record.
  at::Device device;           ///< From --device; its backend is loaded.
  int64_t threads;             ///< Threads that ATen was set to.
};

/// A sub-command of the `focus` program. main() makes it, lets it declare its flags, parses, applies --threads,
/// --device,
/// --quiet and --verbose, and runs it.
class Command {
 public:
  virtual ~Command() = default;
  /// Declares all flags, those of `common_` through CommonOptions::declare, bound to members.
  virtual void declare(OptionTable& table) = 0;
  /// Does the work; results go to standard output (cli/output.h), everything else to the log. Returns the exit code.
  /// Throws Error (exit code 1) and UsageError (2).
  virtual int run(const RunContext& context) = 0;
  const CommonOptions& common() const { return common_; }

 protected:
  CommonOptions common_;
};

/// One line of the registry.
struct CommandEntry {
  std::string_view name;
  std::string_view summary;  ///< One sentence for the help texts, without a full stop.
  std::unique_ptr<Command> (*make)();
};

/// All commands in the order of help (registry.cpp).
const std::vector<CommandEntry>& commands();

/// Runs the program with the given arguments (without the program's name) over these commands and returns the exit
/// code: 0 ok, 1 the run failed, 2 usage. Errors become one line on standard error.
int run_program(const std::vector<std::string>& arguments, const std::vector<CommandEntry>& entries);

}  // namespace focus
