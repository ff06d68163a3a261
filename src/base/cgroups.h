#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace focus {

/// CPUs that the control groups of this process allow: the least quota/period on the way from its group to the root;
/// nullopt without a limit. `proc_file` is /proc/self/cgroup, `mount` /sys/fs/cgroup. Versions 1 and 2.
std::optional<double> cgroup_cpu_limit(const std::filesystem::path& proc_file, const std::filesystem::path& mount);

/// Bytes of memory that the control groups leave to this process: the least limit minus use (without the file cache,
/// which gives way) on the way from its group to the root; nullopt without a limit.
std::optional<int64_t> cgroup_memory_left(const std::filesystem::path& proc_file, const std::filesystem::path& mount);

}  // namespace focus
