#include "base/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iterator>
#include <string_view>

namespace focus {

namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "needed inside a signal handler");
int depth = 0;
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction former[std::size(kSignals)];
constexpr std::string_view kNotice = "\nstopping after the step at hand; once more ends at once, without saving\n";

void on_signal(int number) {
  if (flag.exchange(true)) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  } else if (::write(STDERR_FILENO, kNotice.data(), kNotice.size()) < 0) {
    return;  // Nobody to tell.
  }
}

}  // namespace

InterruptGuard::InterruptGuard() {
  if (depth++ > 0) return;
  flag = false;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &action, &former[i]);
    // Under nohup a hang-up stays ignored. (A shell has its background commands ignore SIGINT: who sends one means it.)
    if (kSignals[i] == SIGHUP && former[i].sa_handler == SIG_IGN) sigaction(kSignals[i], &former[i], nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  if (--depth > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &former[i], nullptr);
  flag = false;
}

bool interrupted() {
  return flag;
}

}  // namespace focus
