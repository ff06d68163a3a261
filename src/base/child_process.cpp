#include "base/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"

namespace focus {

namespace {

constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::milliseconds kFirstTick{5};
constexpr int kCannotRun = 127;

/// A file opened for writing, closed on exec.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& file)
      : descriptor_(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    require(descriptor_ >= 0, "{}: {}", file.string(), std::strerror(errno));
  }
  ~OutputFile() { ::close(descriptor_); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

/// In the new process: only calls that are safe between fork and exec.
[[noreturn]] void become(char* const* arguments, const char* folder, int input, int output, int error, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kCannotRun);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  const bool ready = ::chdir(folder) == 0 && ::dup2(input, STDIN_FILENO) >= 0 && ::dup2(output, STDOUT_FILENO) >= 0 &&
                     ::dup2(error, STDERR_FILENO) >= 0;
  if (ready) ::execvp(arguments[0], arguments);
  ::_exit(kCannotRun);
}

}  // namespace

ChildExit run_child(const std::vector<std::string>& command, const ChildFiles& files,
                    const std::function<void()>& tick) {
  const OutputFile output(files.output), error(files.error);
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  require(input >= 0, "/dev/null: {}", std::strerror(errno));
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    become(arguments.data(), files.folder.c_str(), input, output.descriptor(), error.descriptor(), parent);
  }
  const int reason = errno;
  ::close(input);
  require(child > 0, "cannot start {}: {}", command.front(), std::strerror(reason));
  ::setpgid(child, child);  // Whoever of the two comes first.
  bool told = false;
  for (auto pause = kFirstTick;; pause = std::min(2 * pause, kTick)) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    require(ended >= 0 || errno == EINTR, "waiting for {}: {}", command.front(), std::strerror(errno));
    if (ended == child) {
      if (WIFEXITED(status)) return {WEXITSTATUS(status), 0};
      return {-1, WTERMSIG(status)};
    }
    if (interrupted() && !told) {
      told = true;
      ::kill(-child, SIGINT);
    }
    tick();
    std::this_thread::sleep_for(pause);
  }
}

std::filesystem::path own_program() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

}  // namespace focus
