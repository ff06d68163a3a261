#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace focus {

/// Draws that depend on their place alone: hash the seed with one number after another.

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014) over a running state.
inline uint64_t mix(uint64_t state, uint64_t value) {
  uint64_t x = (state ^ value) + 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Uniform in [0, n) out of 32 hashed bits; for n below 4096 the bias is less than one in a million.
inline int64_t below(uint64_t hash, int64_t n) {
  return static_cast<int64_t>(((hash >> 32) * static_cast<uint64_t>(n)) >> 32);
}

/// Floyd's sample of min(count, n) different numbers out of 0 .. n - 1; draw p hashes `key` with p + 1.
inline std::vector<int64_t> sample(uint64_t key, int64_t count, int64_t n) {
  count = std::min(count, n);
  std::vector<int64_t> drawn;
  for (int64_t p = 0; p < count; ++p) {
    const int64_t last = n - count + p;
    const int64_t next = below(mix(key, static_cast<uint64_t>(p + 1)), last + 1);
    drawn.push_back(std::find(drawn.begin(), drawn.end(), next) == drawn.end() ? next : last);
  }
  return drawn;
}

}  // namespace focus
