#pragma once

#include <cstdint>

namespace focus {

/// Threads to use when --threads is not given: OMP_NUM_THREADS if set (torchrun sets it), else the CPUs in this
/// process's affinity mask, limited by the CPU quota of its control groups (v1 or v2), rounded up. At least 1. The
/// host's number of cores is not what a container may use.
int64_t default_thread_count();

}  // namespace focus
