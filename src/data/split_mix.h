#pragma once

#include <cstdint>

namespace focus {

/// SplitMix64 (Steele, Lea, Flood 2014): small, the same everywhere, unlike the standard library's distributions.
class SplitMix {
 public:
  explicit SplitMix(uint64_t state) : state_(state) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// Uniform in [0, bound), without the bias of a plain remainder.
  uint64_t below(uint64_t bound) {
    const uint64_t limit = ~uint64_t{0} - ~uint64_t{0} % bound;
    uint64_t value = next();
    while (value >= limit) value = next();
    return value % bound;
  }

 private:
  uint64_t state_;
};

}  // namespace focus
