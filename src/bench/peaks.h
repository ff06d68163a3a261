#pragma once

#include "bench/timing.h"

namespace focus {

/// What this machine can do at most, measured, with the threads that ATen uses.
struct MachinePeaks {
  double fma_gflops = 0.0;     ///< float32 multiply-adds in registers, counted as two operations.
  double read_gbytes_s = 0.0;  ///< Reading memory in order, far beyond the caches.
};

/// By that clock, the best of some tries. Takes about half a second and 256 MB.
MachinePeaks measure_peaks(BenchClock clock);

/// "AMD EPYC ..." from /proc/cpuinfo; "unknown" elsewhere.
const char* cpu_name();

}  // namespace focus
