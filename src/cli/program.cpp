#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/command.h"
#include "cli/device.h"
#include "cli/output.h"

namespace focus {

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

std::string program_help(const std::vector<CommandEntry>& entries) {
  std::string text =
      "focus: learned-group sparse attention for pretrained language models\n\n"
      "Usage: focus <command> [flags]\n\nCommands\n";
  for (const CommandEntry& entry : entries) text += fmt::format("  {:<12}{}\n", entry.name, entry.summary);
  text += "\n  focus <command> --help    flags of a command\n  focus --version           versions and commit\n";
  return text;
}

std::string version_text() {
  return fmt::format("focus {} (commit {}, {}), torch {}\n", version(), build_commit(), build_type(), TORCH_VERSION);
}

const CommandEntry& find_command(const std::string& name, const std::vector<CommandEntry>& entries) {
  std::vector<std::string> names;
  for (const CommandEntry& entry : entries) {
    if (entry.name == name) return entry;
    names.emplace_back(entry.name);
  }
  const std::string nearest = nearest_name(name, names);
  fail_usage("unknown command '{}'; {}", name,
             nearest.empty() ? "see 'focus --help'" : fmt::format("did you mean {}?", nearest));
}

int run_command(const CommandEntry& entry, const std::vector<std::string>& arguments) {
  const std::unique_ptr<Command> command = entry.make();
  OptionTable table{std::string(entry.name), std::string(entry.summary)};
  command->declare(table);
  table.parse(arguments);
  if (table.help_requested()) {
    write_output(table.help());
    return 0;
  }
  const CommonOptions& common = command->common();
  if (common.quiet && common.verbose) fail_usage("--quiet and --verbose exclude each other");
  set_log_level(common.quiet ? LogLevel::kWarning : common.verbose ? LogLevel::kDebug : LogLevel::kInfo);
  const int64_t threads = common.threads.value_or(default_thread_count());
  at::set_num_threads(static_cast<int>(threads));
  const at::Device device = open_device(common.device);
  log_debug("{}{} threads, device {}", version_text(), threads, device.str());
  return command->run({table, device, threads});
}

int dispatch(const std::vector<std::string>& arguments, const std::vector<CommandEntry>& entries) {
  if (arguments.empty()) {
    log_line(LogLevel::kInfo, program_help(entries));
    return kUsage;
  }
  const std::string& first = arguments.front();
  if (first == "help") {
    // "focus help train" is "focus train --help".
    if (arguments.size() > 2)
      fail_usage("help {}: expected one command", fmt::join(arguments.begin() + 1, arguments.end(), " "));
    return dispatch({arguments.size() == 2 && !arguments[1].starts_with('-') ? arguments[1] : "--help", "--help"},
                    entries);
  }
  if (first == "--help" || first == "-h" || first == "--version") {
    write_output(first == "--version" ? version_text() : program_help(entries));
    return 0;
  }
  if (first.size() > 1 && first.front() == '-') {
    fail_usage("'{}' before the command; usage: focus <command> [flags]", first);
  }
  return run_command(find_command(first, entries), {arguments.begin() + 1, arguments.end()});
}

/// "error: ..." on one line whatever the log level.
int report(int code, std::string message) {
  draw_status_line("");
  while (!message.empty() && message.back() == '\n') message.pop_back();
  std::replace(message.begin(), message.end(), '\n', ' ');
  log_line(LogLevel::kOff, "focus: error: " + message);
  return code;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// "PATH: reason" of what the standard library says about a path.
std::string filesystem_text(const std::filesystem::filesystem_error& error) {
  std::string text = error.path1().string();
  if (!error.path2().empty()) text += " and " + error.path2().string();
  return text.empty() ? error.code().message() : fmt::format("{}: {}", text, error.code().message());
}

/// LibTorch reports a failed allocation as an ordinary error.
bool is_out_of_memory(const std::string& message) {
  return message.find("can't allocate memory") != std::string::npos ||
         message.find("out of memory") != std::string::npos;
}

std::string out_of_memory(const std::string& detail) {
  return "out of memory: use a smaller --batch-size, a shorter --context or a narrower --dtype" +
         (detail.empty() ? "" : " (" + detail + ")");
}

}  // namespace

int run_program(const std::vector<std::string>& arguments, const std::vector<CommandEntry>& entries) {
  try {
    return dispatch(arguments, entries);
  } catch (const BrokenPipe&) {
    return 0;
  } catch (const UsageError& error) {
    return report(kUsage, error.what());
  } catch (const Error& error) {
    return report(kFailed, error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return report(kFailed, filesystem_text(error));
  } catch (const nlohmann::json::exception& error) {
    return report(kFailed, fmt::format("JSON {}", json_error_text(error, "")));
  } catch (const std::bad_alloc&) {
    return report(kFailed, out_of_memory(""));
  } catch (const c10::Error& error) {
    const std::string line = first_line(error.what_without_backtrace());
    return report(kFailed, is_out_of_memory(line) ? out_of_memory(line) : line);
  } catch (const std::exception& error) {
    const std::string line = first_line(error.what());
    return report(kFailed, is_out_of_memory(line) ? out_of_memory(line) : line);
  }
}

}  // namespace focus
