#include "base/interrupt.h"

#include <atomic>
#include <csignal>

namespace focus {

namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "needed inside a signal handler");
int depth = 0;
struct sigaction former_int, former_term;

void on_signal(int number) {
  if (flag.exchange(true)) {
    std::signal(number, SIG_DFL);
    std::raise(number);
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
  sigaction(SIGINT, &action, &former_int);
  sigaction(SIGTERM, &action, &former_term);
}

InterruptGuard::~InterruptGuard() {
  if (--depth > 0) return;
  sigaction(SIGINT, &former_int, nullptr);
  sigaction(SIGTERM, &former_term, nullptr);
  flag = false;
}

bool interrupted() {
  return flag;
}

}  // namespace focus
