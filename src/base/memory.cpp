#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "base/cgroups.h"

namespace focus {

namespace {

std::optional<int64_t> system_memory_available() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoll(line.substr(line.find(':') + 1)) * 1024;
  }
  return std::nullopt;
}

}  // namespace

int64_t available_memory() {
  const std::optional<int64_t> system = system_memory_available();
  const std::optional<int64_t> groups = cgroup_memory_left("/proc/self/cgroup", "/sys/fs/cgroup");
  if (system && groups) return std::min(*system, *groups);
  return system.value_or(groups.value_or(0));
}

}  // namespace focus
