#pragma once

#include <cstdint>
#include <initializer_list>

namespace focus {

/// Names of the independent streams of random numbers that a training run draws from.
enum : int64_t {
  kInitStream = 0,
  kIndexStream = 1,
  kListsStream = 2,
  kProbesStream = 3,
  kRepeatsStream = 4,
  kBudgetStream = 5,
  kReclusterStream = 6
};

/// Random numbers that depend on a key only (seed, layer, stream, update ...), so that a resumed run draws what the
/// uninterrupted one would have drawn. SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, 2014).
class RandomStream {
 public:
  RandomStream(std::initializer_list<int64_t> key) {
    for (const int64_t part : key) {
      state_ += static_cast<uint64_t>(part);
      state_ = next();
    }
  }

  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  /// In [low, high] (low if high < low).
  int64_t between(int64_t low, int64_t high) {
    if (high <= low) return low;
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }

 private:
  uint64_t state_ = 0;
};

}  // namespace focus
