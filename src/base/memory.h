#pragma once

#include <cstdint>

namespace focus {

/// Where weights lie on the CPU: in the mapped file or in memory of their own, which is read faster.
enum class WeightMemory {
  kAuto,  ///< In their own if that takes at most half of the memory available.
  kMapped,
  kResident,
};

/// Bytes of memory that this process may still take without driving others out: what the system calls available
/// (MemAvailable of /proc/meminfo) and what its control groups leave. 0 where neither is known.
int64_t available_memory();

}  // namespace focus
