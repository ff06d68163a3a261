#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace focus {

/// Wall times of one piece of work, in milliseconds.
struct Timing {
  double median = 0.0;
  double min = 0.0;
  double max = 0.0;

  Timing scaled(double factor) const { return {median * factor, min * factor, max * factor}; }
  Timing operator+(const Timing& other) const { return {median + other.median, min + other.min, max + other.max}; }
};

/// Median (mean of the middle two), least and largest of at least one sample.
Timing summarize(std::vector<double> samples);

/// Wall time, or the CPU time of this process (of use with one thread, on a machine that is busy with other work).
enum class BenchClock { kWall, kCpu };

/// A reading of the clock in milliseconds.
double now_ms(BenchClock clock);

/// Runs every function once to warm up, then `repeats` rounds in which each is timed in turn, so that a change of the
/// machine's speed meets them all alike. A sample repeats a short function until `min_ms` have passed and takes the
/// mean. Calls `round` after each round; when it returns false, the rounds so far count.
std::vector<Timing> time_alternating(const std::vector<std::function<void()>>& functions, int64_t repeats,
                                     double min_ms, BenchClock clock, const std::function<bool()>& round);

/// Growth of this process's resident memory while `function` runs, at its highest, in bytes; -1 where the kernel does
/// not tell (Linux only).
int64_t peak_extra_bytes(const std::function<void()>& function);

}  // namespace focus
