#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace focus {

/// A hash table from pairs of ids to a rank and an id, with open addressing.
class PairTable {
 public:
  struct Entry {
    uint64_t key;
    int32_t rank;
    int32_t id;
  };

  /// Room for `count` pairs.
  explicit PairTable(size_t count) {
    const size_t capacity = std::bit_ceil(2 * count + 2);
    entries_.assign(capacity, Entry{kEmpty, 0, 0});
    shift_ = 64 - std::countr_zero(capacity);
  }

  /// False, changing nothing, if the pair is there already.
  bool insert(int32_t left, int32_t right, int32_t rank, int32_t id) {
    Entry& entry = entries_[slot(key_of(left, right))];
    if (entry.key != kEmpty) return false;
    entry = {key_of(left, right), rank, id};
    return true;
  }

  const Entry* find(int32_t left, int32_t right) const {
    const Entry& entry = entries_[slot(key_of(left, right))];
    return entry.key == kEmpty ? nullptr : &entry;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  // Where the key is, or the empty place where it belongs.
  size_t slot(uint64_t key) const {
    size_t place = (key * 0x9E3779B97F4A7C15u) >> shift_;
    while (entries_[place].key != kEmpty && entries_[place].key != key) place = (place + 1) & (entries_.size() - 1);
    return place;
  }

  std::vector<Entry> entries_;
  int shift_;
};

}  // namespace focus
