#pragma once

#include <ATen/Parallel.h>
#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/attention_kernel.h"
#include "kernels/cpu/strip_math.h"
#include "kernels/pairs.h"
#include "kernels/scratch.h"

/// What forward and backward of the CPU kernel share: how the allowed pairs are cut into tiles of rows against runs of
/// keys, how rows of any dtype and stride become float32, and how work is spread over threads.
///
/// A row is a query of one head; rows count query by query, the heads that share a KV head next to each other.
namespace focus::kernels::cpu {

/// Some rows and for each the run of an array of keys that it may meet.
struct RowTile {
  int64_t rows = 0;
  const int32_t* row = nullptr;    ///< [rows] numbers of the rows, from the block's first query on, ascending
  const int64_t* begin = nullptr;  ///< [rows] row x meets the keys begin[x] .. end[x] - 1 of the array
  const int64_t* end = nullptr;    ///< [rows]
  const int32_t* keys = nullptr;   ///< The array: positions among the Tk, ascending; null: 0, 1, 2, ...

  /// From the first to behind the last key that any of the rows [from, to) meets; empty: begin >= end.
  std::pair<int64_t, int64_t> span(int64_t from, int64_t to) const;
};

/// The queries of a task and how their rows are grouped.
struct QueryBlock {
  int64_t first = 0;
  int64_t last = 0;   ///< Queries first .. last - 1.
  int64_t group = 1;  ///< Query heads that share a KV head.
  int64_t most = 1;   ///< Rows of a tile at most.
};

/// Cuts all allowed pairs of a block into tiles, in a fixed order, each pair in exactly one: first the window over the
/// original order, then each list beyond the window. `index` null: only the window pass.
void visit_tiles(const PairRule& rule, const ListIndex* index, const QueryBlock& block,
                 c10::function_ref<void(const RowTile&)> visit);

/// The rule for one batch row. `documents` is document_start made contiguous, or undefined.
PairRule pair_rule(const AttentionProblem& problem, const at::Tensor& documents, int64_t batch);

/// Lanes of one strip, from row `first` of a tile on, against the keys [from, to) of its array.
struct StripLanes {
  static constexpr int64_t kMost = 64;
  int32_t begin[kMost];
  int32_t end[kMost];

  void set(const RowTile& tile, int64_t first, int64_t lanes, int64_t from, int64_t to);
};

/// Rows of D values each, in one head of a tensor [B, H, T, D] of any strides.
template <typename T>
struct HeadView {
  const T* data = nullptr;
  int64_t row_stride = 0;
  int64_t step = 1;
  int64_t dim = 0;

  HeadView(const at::Tensor& tensor, int64_t batch, int64_t head)
      : data(tensor.const_data_ptr<T>() + batch * tensor.stride(0) + head * tensor.stride(1)),
        row_stride(tensor.stride(2)),
        step(tensor.stride(3)),
        dim(tensor.size(3)) {}

  const T* row(int64_t index) const { return data + index * row_stride; }

  /// A float32 row whose first pad_lanes(dim) values may be read: the tensor's own memory where it serves, else a copy
  /// in `buffer`, zero beyond dim.
  const float* padded_row(const StripMath& math, int64_t index, float* buffer) const {
    const T* source = row(index);
    if constexpr (std::is_same_v<T, float>) {
      if (step == 1 && dim % kLanes == 0) return source;
    }
    if (std::is_same_v<T, at::BFloat16> && step == 1) {
      math.widen(reinterpret_cast<const uint16_t*>(source), dim, buffer);
    } else {
      for (int64_t d = 0; d < dim; ++d) buffer[d] = static_cast<float>(source[d * step]);
    }
    std::fill(buffer + dim, buffer + pad_lanes(dim), 0.0F);
    return buffer;
  }
};

/// Float32 rows of a run of keys, by pointers.
class KeyRows {
 public:
  /// Room for `most` rows.
  KeyRows(Scratch& scratch, int64_t most, int64_t width)
      : width_(width), buffer_(scratch.floats(most * width)), rows_(static_cast<size_t>(most)) {}

  /// The keys [from, to) of the tile's array.
  template <typename T>
  void load(const StripMath& math, const HeadView<T>& head, const RowTile& tile, int64_t from, int64_t to) {
    for (int64_t x = from; x < to; ++x) {
      const int64_t position = tile.keys == nullptr ? x : tile.keys[x];
      if (tile.keys != nullptr && x + kAhead < to) fetch(head.row(tile.keys[x + kAhead]), head.dim);
      rows_[static_cast<size_t>(x - from)] = head.padded_row(math, position, buffer_ + (x - from) * width_);
    }
  }
  /// Keys ahead of the one at work whose rows are fetched: those of a list lie scattered.
  static constexpr int64_t kAhead = 16;
  template <typename T>
  static void fetch(const T* row, int64_t count) {
    const char* bytes = reinterpret_cast<const char*>(row);
    for (int64_t x = 0; x < count * static_cast<int64_t>(sizeof(T)); x += 64) __builtin_prefetch(bytes + x, 0, 2);
  }

  /// Pointers to the rows, from that of key `x` - from on.
  const float* const* at(int64_t x) const { return rows_.data() + x; }

 private:
  int64_t width_;
  float* buffer_;
  std::vector<const float*> rows_;
};

/// Calls f with a value of the C++ type of a dtype that AttentionKernel::supports has accepted.
template <typename F>
void with_dtype(at::ScalarType dtype, const F& f) {
  if (dtype == at::kBFloat16) {
    f(at::BFloat16{});
  } else if (dtype == at::kHalf) {
    f(at::Half{});
  } else {
    TORCH_INTERNAL_ASSERT(dtype == at::kFloat);
    f(float{});
  }
}

/// Runs tasks 0 .. count - 1, the last first (causal: the longest), each by whichever thread is free. `make_worker`
/// makes a thread's worker, a callable on a task. Results must not depend on who runs what.
template <typename MakeWorker>
void run_tasks(int64_t count, const MakeWorker& make_worker) {
  std::atomic<int64_t> next{count - 1};
  at::parallel_for(0, std::min<int64_t>(count, at::get_num_threads()), 1, [&](int64_t, int64_t) {
    auto worker = make_worker();
    for (int64_t task = next--; task >= 0; task = next--) worker(task);
  });
}

}  // namespace focus::kernels::cpu
