#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace focus::kernels {

/// List ids must be smaller than this (counting sorts allocate one cell a list).
constexpr int64_t kMaxLists = 65536;

/// Which keys one batch row's queries may meet, by position. Positions count over the Tk keys.
struct PairRule {
  int64_t offset = 0;  ///< Tk - Tq: position of query 0.
  /// Keys i - window .. i belong to the window pass; a value >= Tk makes it the whole causal triangle.
  int64_t window = 0;
  int64_t layer_window = 0;                 ///< 0 for none.
  const int32_t* document_start = nullptr;  ///< [Tk] of this batch row, or null.

  int64_t position(int64_t query) const { return offset + query; }
  /// First position that query position i may see at all; > i for padding.
  int64_t first(int64_t i) const {
    int64_t first = document_start != nullptr ? std::max<int64_t>(document_start[i], 0) : 0;
    if (layer_window > 0) first = std::max(first, i - layer_window + 1);
    return first;
  }
  /// First position of the window pass; keys before it belong to the list pass.
  int64_t window_begin(int64_t i) const { return window >= i ? 0 : i - window; }
  /// The range of a list's keys (ascending positions) that query position i meets in the list pass: those from first(i)
  /// on and before the window.
  std::pair<int64_t, int64_t> list_range(int64_t i, const int32_t* keys, const int32_t* keys_end) const {
    const int64_t begin = std::lower_bound(keys, keys_end, first(i)) - keys;
    const int64_t end = std::lower_bound(keys + begin, keys_end, window_begin(i)) - keys;
    return {begin, end};
  }
};

/// The inverted file of one (batch row, list set): keys sorted by list, and for every list the queries that probe it,
/// both ascending. Built by counting sort in O(Tk + Tq * P).
class ListIndex {
 public:
  ListIndex() = default;
  /// key_group [tk] and probes [tq, slots], both contiguous. Negative ids are unused. A list probed twice by one query
  /// counts once. Throws Error on ids outside [-1, kMaxLists).
  ListIndex(const int32_t* key_group, int64_t tk, const int32_t* probes, int64_t tq, int64_t slots);

  int64_t lists() const { return static_cast<int64_t>(key_begin_.size()) - 1; }
  /// Positions of the keys of a list, ascending.
  const int32_t* keys(int64_t list) const { return keys_.data() + key_begin_[list]; }
  int64_t key_count(int64_t list) const { return key_begin_[list + 1] - key_begin_[list]; }
  /// Rows (0 .. Tq-1) of the queries that probe a list, ascending.
  const int32_t* queries(int64_t list) const { return queries_.data() + query_begin_[list]; }
  int64_t query_count(int64_t list) const { return query_begin_[list + 1] - query_begin_[list]; }

 private:
  std::vector<int64_t> key_begin_ = {0};    // [lists + 1]
  std::vector<int32_t> keys_;               // [keys in some list]
  std::vector<int64_t> query_begin_ = {0};  // [lists + 1]
  std::vector<int32_t> queries_;            // [probes of lists that have keys]
};

/// The indices of all (batch row, list set), [B * Hg]. key_group int32 [B, Hg, Tk], probes int32 [B, Hg, Tq, P].
std::vector<ListIndex> build_list_indices(const at::Tensor& key_group, const at::Tensor& probes);

}  // namespace focus::kernels
