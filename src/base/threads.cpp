#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "base/cgroups.h"

namespace focus {

namespace {

int64_t affinity_count() {
  // The mask grows until the kernel's fits, for machines of more than 1024 CPUs.
  for (size_t cpus = 1024; cpus <= (size_t{1} << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    const int64_t count = ok ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (ok) return count;
  }
  return std::thread::hardware_concurrency();
}

}  // namespace

int64_t default_thread_count() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const int64_t count = std::strtoll(text, nullptr, 10);
    if (count > 0) return count;
  }
  int64_t count = std::max<int64_t>(affinity_count(), 1);
  if (const auto limit = cgroup_cpu_limit("/proc/self/cgroup", "/sys/fs/cgroup")) {
    count = std::min(count, std::max<int64_t>(static_cast<int64_t>(std::ceil(*limit)), 1));
  }
  return count;
}

}  // namespace focus
