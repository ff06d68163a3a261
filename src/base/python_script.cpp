#include "base/python_script.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/interrupt.h"

namespace focus {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void replace_process(const std::vector<std::string>& command) {
  std::vector<char*> pointers;
  for (const std::string& argument : command) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  ::execvp(pointers.front(), pointers.data());
  ::_exit(127);
}

constexpr useconds_t kPollMicroseconds = 20'000;

}  // namespace

fs::path find_script(const std::string& name) {
  return find_shipped("scripts/" + name, name);
}

fs::path find_shipped(const std::string& in_sources, const std::string& installed) {
  const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path candidates[] = {bin / "../../.." / in_sources, bin / "../share/focus" / installed};
  for (const fs::path& candidate : candidates) {
    if (fs::exists(candidate)) return fs::canonical(candidate);
  }
  fail("neither {} nor {} exists", candidates[0].lexically_normal().string(),
       candidates[1].lexically_normal().string());
}

std::vector<std::string> python_command(const fs::path& script) {
  const fs::path own = script.parent_path().parent_path() / ".venv/bin/python";
  const char* chosen = std::getenv("FOCUS_PYTHON");
  return {chosen != nullptr ? chosen : fs::exists(own) ? own.string() : "python3", script.string()};
}

int run_and_wait(const std::vector<std::string>& command) {
  const pid_t child = ::fork();
  require(child >= 0, "cannot start {}: {}", command.front(), std::strerror(errno));
  if (child == 0) replace_process(command);
  int status = 0;
  for (bool told = false; true;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    require(ended == 0 || errno == EINTR, "waiting for a process: {}", std::strerror(errno));
    // From a terminal the program had the signal already; from elsewhere only this process.
    if (interrupted() && !told) told = ::kill(child, SIGINT) == 0;
    ::usleep(kPollMicroseconds);
  }
  if (interrupted() && WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  require(WIFEXITED(status), "{} was ended by signal {}", command.front(), WTERMSIG(status));
  return WEXITSTATUS(status);
}

LineServer::LineServer(const std::vector<std::string>& command) : name_(command.front()) {
  // A pair of sockets for the input, so that writing to a program that has ended is an error and not a signal.
  std::array<int, 2> input{}, output{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input.data()) == 0, "cannot start {}: {}", name_,
          std::strerror(errno));
  require(::pipe2(output.data(), O_CLOEXEC) == 0, "cannot start {}: {}", name_, std::strerror(errno));
  child_ = ::fork();
  require(child_ >= 0, "cannot start {}: {}", name_, std::strerror(errno));
  if (child_ == 0) {
    ::dup2(input[1], STDIN_FILENO);
    ::dup2(output[1], STDOUT_FILENO);
    replace_process(command);
  }
  ::close(input[1]);
  ::close(output[1]);
  to_ = input[0];
  from_ = output[0];
}

LineServer::~LineServer() {
  ::close(to_);
  ::close(from_);
  int status = 0;
  while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
}

std::string LineServer::ask(const std::string& line) {
  const std::string bytes = line + "\n";
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t sent = ::send(to_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    require(sent > 0, "{} cannot be run or has ended", name_);
    done += static_cast<size_t>(sent);
  }
  while (true) {
    const size_t end = rest_.find('\n');
    if (end != std::string::npos) {
      std::string answer = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      return answer;
    }
    std::array<char, 1 << 16> buffer{};
    const ssize_t got = ::read(from_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    require(got > 0, "{} cannot be run or has ended", name_);
    rest_.append(buffer.data(), static_cast<size_t>(got));
  }
}

}  // namespace focus
