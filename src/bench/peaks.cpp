#include "bench/peaks.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace focus {

namespace {

// Enough independent chains to hide the latency, few enough for the registers.
constexpr int kChains = 12;

template <int kWidth>
struct Lanes {
  typedef float Float __attribute__((vector_size(kWidth * 4)));
  typedef uint64_t Word __attribute__((vector_size(kWidth * 4)));
};

// Multiply-adds of kChains vectors; returns a number that depends on all of them.
template <int kWidth>
inline __attribute__((always_inline)) float chains(int64_t steps) {
  using Vector = typename Lanes<kWidth>::Float;
  Vector sum[kChains];  // all different, or the compiler makes one chain of equal ones
  for (int c = 0; c < kChains; ++c) sum[c] = Vector{} + static_cast<float>(c);
  const Vector factor = Vector{} + 0.999F;
  const Vector term = Vector{} + 1.0F;
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = sum[c] * factor + term;
  }
  Vector total = {};
  for (const Vector& s : sum) total += s;
  return total[0];
}

// Exclusive or over whole vectors; bytes a multiple of 256.
template <int kWidth>
inline __attribute__((always_inline)) uint64_t read_all(const char* data, int64_t bytes) {
  using Vector = typename Lanes<kWidth>::Word;
  Vector sum[4] = {};
  for (int64_t x = 0; x < bytes; x += int64_t{4 * sizeof(Vector)}) {
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      Vector v;
      std::memcpy(&v, data + x + c * sizeof(Vector), sizeof v);
      sum[c] ^= v;
    }
  }
  const Vector total = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  return total[0];
}

struct Loops {
  int width;
  float (*multiply_add)(int64_t);
  uint64_t (*read)(const char*, int64_t);
};

float multiply_add_baseline(int64_t steps) {
  return chains<4>(steps);
}
uint64_t read_baseline(const char* data, int64_t bytes) {
  return read_all<4>(data, bytes);
}
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) float multiply_add_avx2(int64_t steps) {
  return chains<8>(steps);
}
__attribute__((target("avx2"))) uint64_t read_avx2(const char* data, int64_t bytes) {
  return read_all<8>(data, bytes);
}
__attribute__((target("avx512f"))) float multiply_add_avx512(int64_t steps) {
  return chains<16>(steps);
}
#endif

Loops choose_loops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {16, multiply_add_avx512, read_avx2};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {8, multiply_add_avx2, read_avx2};
#endif
  return {4, multiply_add_baseline, read_baseline};
}

template <typename F>
double best_seconds(int repeats, BenchClock clock, const F& work) {
  double best = 1e30;
  for (int r = 0; r < repeats; ++r) {
    const double start = now_ms(clock);
    at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) work(part);
    });
    best = std::min(best, 1e-3 * (now_ms(clock) - start));
  }
  return best;
}

std::string read_cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

MachinePeaks measure_peaks(BenchClock clock) {
  const Loops loops = choose_loops();
  const auto threads = static_cast<double>(at::get_num_threads());
  MachinePeaks peaks;
  std::atomic<float> sink{0.0F};  // keeps the work from being left out
  constexpr int64_t kSteps = 1'000'000;
  const double seconds = best_seconds(10, clock, [&](int64_t) { sink = loops.multiply_add(kSteps); });
  peaks.fma_gflops = 2e-9 * kChains * loops.width * kSteps * threads / seconds;

  constexpr int64_t kBytes = int64_t{256} << 20;
  const std::vector<char> memory(kBytes, 1);
  const int64_t part = kBytes / at::get_num_threads() / 256 * 256;
  std::atomic<uint64_t> word{0};
  const double read_seconds =
      best_seconds(7, clock, [&](int64_t p) { word = loops.read(memory.data() + p * part, part); });
  peaks.read_gbytes_s = 1e-9 * static_cast<double>(part) * threads / read_seconds;
  return peaks;
}

const char* cpu_name() {
  static const std::string name = read_cpu_name();
  return name.c_str();
}

}  // namespace focus
