#include "base/cgroups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string>

namespace focus {

namespace {

namespace fs = std::filesystem;

/// What a group's files say in one version, nullopt for no limit.
using Limit = std::optional<double> (*)(const fs::path& group);

/// cpu.max of version 2: "200000 100000" or "max 100000".
std::optional<double> cpu_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return std::nullopt;
  return std::strtod(quota.c_str(), nullptr) / period;
}

/// cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us of version 1.
std::optional<double> cpu_v1(const fs::path& group) {
  double quota = 0, period = 0;
  if (!(std::ifstream(group / "cpu.cfs_quota_us") >> quota)) return std::nullopt;
  if (!(std::ifstream(group / "cpu.cfs_period_us") >> period)) return std::nullopt;
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

/// The number behind `key` in a file of lines "key number", 0 without.
double line_value(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  std::string name;
  for (double value = 0; lines >> name >> value;) {
    if (name == key) return value;
  }
  return 0;
}

std::optional<double> memory_left(const fs::path& group, const char* limit_file, const char* use_file,
                                  const char* cache_key) {
  std::string text;
  double use = 0;
  if (!(std::ifstream(group / limit_file) >> text) || text == "max") return std::nullopt;
  const double limit = std::strtod(text.c_str(), nullptr);
  constexpr double kUnlimited = 4e18;  // version 1 writes the largest page-aligned number
  if (limit <= 0 || limit > kUnlimited || !(std::ifstream(group / use_file) >> use)) return std::nullopt;
  return std::max(0.0, limit - use + line_value(group / "memory.stat", cache_key));
}

std::optional<double> memory_v2(const fs::path& group) {
  return memory_left(group, "memory.max", "memory.current", "file");
}

std::optional<double> memory_v1(const fs::path& group) {
  return memory_left(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache");
}

void take_least(std::optional<double>& least, std::optional<double> limit) {
  if (limit) least = std::min(*limit, least.value_or(*limit));
}

/// The least limit over `path` and all groups above it. Inside a container the path may be the host's, not visible
/// here; the mount's root then is the container's own group.
std::optional<double> least_on_the_way(const fs::path& mount, const std::string& path, Limit limit) {
  std::optional<double> least = limit(mount);
  fs::path group = mount;
  for (const fs::path& part : fs::path(path).relative_path()) {
    group /= part;
    take_least(least, limit(group));
  }
  return least;
}

std::optional<double> least_limit(const fs::path& proc_file, const fs::path& mount, const std::string& controller,
                                  std::initializer_list<const char*> v1_mounts, Limit v2, Limit v1) {
  std::ifstream file(proc_file);
  std::optional<double> least;
  // Lines are "id:controllers:path"; version 2 has the id 0 and no controllers.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      take_least(least, least_on_the_way(mount, path, v2));
      take_least(least, least_on_the_way(mount / "unified", path, v2));
    } else if (controllers.find("," + controller + ",") != std::string::npos) {
      for (const char* at : v1_mounts) take_least(least, least_on_the_way(mount / at, path, v1));
    }
  }
  return least;
}

}  // namespace

std::optional<double> cgroup_cpu_limit(const fs::path& proc_file, const fs::path& mount) {
  return least_limit(proc_file, mount, "cpu", {"cpu", "cpu,cpuacct"}, cpu_v2, cpu_v1);
}

std::optional<int64_t> cgroup_memory_left(const fs::path& proc_file, const fs::path& mount) {
  const std::optional<double> left = least_limit(proc_file, mount, "memory", {"memory"}, memory_v2, memory_v1);
  return left ? std::optional<int64_t>(static_cast<int64_t>(*left)) : std::nullopt;
}

}  // namespace focus
