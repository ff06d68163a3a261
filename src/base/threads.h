#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace focus {

/// Threads to use when --threads is not given: OMP_NUM_THREADS if set (torchrun sets it), else the CPUs in this
/// process's affinity mask, limited by the CPU quota of its control groups (v1 or v2), rounded up. At least 1. The
/// host's number of cores is not what a container may use.
int64_t default_thread_count();

/// CPUs that the control groups of this process allow: the least quota/period on the way from its group to the root;
/// nullopt without a limit. `proc_file` is /proc/self/cgroup, `mount` /sys/fs/cgroup.
std::optional<double> cgroup_cpu_limit(const std::filesystem::path& proc_file, const std::filesystem::path& mount);

}  // namespace focus
