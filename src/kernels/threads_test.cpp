#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>

namespace focus {
namespace {

// Code compiled without OpenMP has at::parallel_for run everything on the calling thread, and says nothing.
TEST(Threads, ParallelForRunsOnAsManyAsAreSet) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  at::parallel_for(0, 3, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  at::set_num_threads(before);
  EXPECT_EQ(threads.size(), 3U);
}

}  // namespace
}  // namespace focus
