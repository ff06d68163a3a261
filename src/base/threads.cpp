#include "base/threads.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace focus {

namespace {

namespace fs = std::filesystem;

/// cpu.max of version 2: "200000 100000" or "max 100000".
std::optional<double> v2_limit(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return std::nullopt;
  return std::strtod(quota.c_str(), nullptr) / period;
}

/// cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us of version 1.
std::optional<double> v1_limit(const fs::path& group) {
  double quota = 0, period = 0;
  if (!(std::ifstream(group / "cpu.cfs_quota_us") >> quota)) return std::nullopt;
  if (!(std::ifstream(group / "cpu.cfs_period_us") >> period)) return std::nullopt;
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

/// The least limit over `path` and all groups above it. Inside a container the path may be the host's, not visible
/// here; the mount's root then is the container's own group.
template <typename Limit>
std::optional<double> least_limit(const fs::path& mount, const std::string& path, Limit limit) {
  std::optional<double> least = limit(mount);
  fs::path group = mount;
  for (const fs::path& part : fs::path(path).relative_path()) {
    group /= part;
    const std::optional<double> here = limit(group);
    if (here) least = std::min(*here, least.value_or(*here));
  }
  return least;
}

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

std::optional<double> cgroup_cpu_limit(const fs::path& proc_file, const fs::path& mount) {
  std::ifstream file(proc_file);
  std::optional<double> least;
  auto take = [&least](std::optional<double> limit) {
    if (limit) least = std::min(*limit, least.value_or(*limit));
  };
  // Lines are "id:controllers:path"; version 2 has the id 0 and no controllers.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      take(least_limit(mount, path, v2_limit));
      take(least_limit(mount / "unified", path, v2_limit));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      take(least_limit(mount / "cpu", path, v1_limit));
      take(least_limit(mount / "cpu,cpuacct", path, v1_limit));
    }
  }
  return least;
}

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
