#include "base/interrupt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace focus {
namespace {

TEST(Interrupt, FirstSignalSetsTheFlag) {
  EXPECT_FALSE(interrupted());
  {
    InterruptGuard outer;
    {
      InterruptGuard inner;
      EXPECT_FALSE(interrupted());
      std::raise(SIGTERM);
      EXPECT_TRUE(interrupted());
    }
    EXPECT_TRUE(interrupted());
  }
  EXPECT_FALSE(interrupted());
}

int signal_that_ended(void (*body)()) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(Interrupt, SecondSignalEndsTheProcess) {
  EXPECT_EQ(signal_that_ended([] {
              InterruptGuard guard;
              std::raise(SIGINT);
            }),
            0);
  EXPECT_EQ(signal_that_ended([] {
              InterruptGuard guard;
              std::raise(SIGINT);
              std::raise(SIGINT);
            }),
            SIGINT);
}

TEST(Interrupt, AHangUpIsOneOfThemUnlessItIsIgnored) {
  EXPECT_EQ(signal_that_ended([] {
              InterruptGuard guard;
              std::raise(SIGHUP);
              if (!interrupted()) std::raise(SIGKILL);
            }),
            0);
  EXPECT_EQ(signal_that_ended([] {
              std::signal(SIGHUP, SIG_IGN);
              std::signal(SIGINT, SIG_IGN);
              InterruptGuard guard;
              std::raise(SIGHUP);
              if (interrupted()) std::raise(SIGKILL);
              std::raise(SIGINT);
              if (!interrupted()) std::raise(SIGKILL);
            }),
            0);
}

TEST(Interrupt, FormerHandlersComeBack) {
  EXPECT_EQ(signal_that_ended([] {
              { InterruptGuard guard; }
              std::raise(SIGTERM);
            }),
            SIGTERM);
}

}  // namespace
}  // namespace focus
