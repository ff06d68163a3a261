#include "bench/timing.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include "base/error.h"

namespace focus {

namespace {

// A line "VmHWM:  1234 kB" of /proc/self/status, in bytes; -1 if there is none.
int64_t status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return -1;
}

}  // namespace

double now_ms(BenchClock clock) {
  if (clock == BenchClock::kCpu) {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
  }
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Timing summarize(std::vector<double> samples) {
  require(!samples.empty(), "bench: no samples");
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  return {0.5 * (samples[(n - 1) / 2] + samples[n / 2]), samples.front(), samples.back()};
}

std::vector<Timing> time_alternating(const std::vector<std::function<void()>>& functions, int64_t repeats,
                                     double min_ms, BenchClock clock, const std::function<bool()>& round) {
  std::vector<int64_t> inner;
  for (const auto& function : functions) {
    const double start = now_ms(clock);
    function();
    const double once = std::max(now_ms(clock) - start, 1e-3);
    inner.push_back(std::max<int64_t>(1, static_cast<int64_t>(min_ms / once)));
  }
  std::vector<std::vector<double>> samples(functions.size());
  for (int64_t r = 0; r < repeats; ++r) {
    for (size_t f = 0; f < functions.size(); ++f) {
      const double start = now_ms(clock);
      for (int64_t x = 0; x < inner[f]; ++x) functions[f]();
      samples[f].push_back((now_ms(clock) - start) / static_cast<double>(inner[f]));
    }
    if (!round()) break;
  }
  std::vector<Timing> result;
  for (auto& list : samples) result.push_back(summarize(std::move(list)));
  return result;
}

int64_t peak_extra_bytes(const std::function<void()>& function) {
  {
    std::ofstream reset("/proc/self/clear_refs");
    reset << "5";  // sets the high-water mark back to the present size
    if (!reset.flush()) return -1;
  }
  const int64_t before = status_bytes("VmRSS");
  function();
  const int64_t highest = status_bytes("VmHWM");
  return before < 0 || highest < 0 ? -1 : std::max<int64_t>(0, highest - before);
}

}  // namespace focus
