#include "base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <thread>

namespace focus {
namespace {

TEST(Threads, FollowAffinityAndEnvironment) {
  unsetenv("OMP_NUM_THREADS");
  EXPECT_GE(default_thread_count(), 1);
  std::thread([] {
    cpu_set_t set, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) {
        CPU_SET(cpu, &one);
        break;
      }
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(default_thread_count(), 1);
  }).join();
  setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(default_thread_count(), 3);
  setenv("OMP_NUM_THREADS", "nonsense", 1);
  EXPECT_GE(default_thread_count(), 1);
  unsetenv("OMP_NUM_THREADS");
}

}  // namespace
}  // namespace focus
