#pragma once

#include <ATen/Parallel.h>
#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/attention_kernel.h"
#include "kernels/cpu/tile_math.h"
#include "kernels/pairs.h"
#include "kernels/scratch.h"

/// What forward and backward of the tiled CPU kernel share: how the allowed pairs are cut into tiles, how rows of any
/// dtype and stride become float32, and how work is spread over threads.
namespace focus::kernels::cpu {

constexpr int64_t kTileKeys = 128;
constexpr int64_t kTileRows = 96;     ///< query rows of a tile: queries times the heads that share a KV head
constexpr int64_t kBlockRows = 1024;  ///< query rows whose states one task holds

/// Queries of a tile, and of the block whose states one task keeps. They depend on the shape only, never on the thread
/// count.
inline int64_t tile_queries(int64_t group) {
  return std::max<int64_t>(1, kTileRows / group);
}
inline int64_t block_queries(int64_t group) {
  return std::max<int64_t>(1, kBlockRows / (group * tile_queries(group))) * tile_queries(group);
}

/// Some queries and up to kTileKeys keys, of which query x may meet the keys begin[x] .. end[x] - 1 (none if begin >=
/// end).
struct PairTile {
  int64_t queries = 0;
  const int32_t* query = nullptr;  ///< [queries] rows among the Tq, ascending
  const int32_t* begin = nullptr;  ///< [queries]
  const int32_t* end = nullptr;    ///< [queries]
  int64_t keys = 0;
  const int32_t* key = nullptr;  ///< [keys] positions among the Tk, ascending
};

/// Cuts all allowed pairs of queries [first, last) into tiles, in a fixed order, each pair in exactly one: first the
/// window over the original order, then each list beyond the window. `index` null: only the window pass. Tiles hold at
/// most `most` queries.
void visit_tiles(const PairRule& rule, const ListIndex* index, int64_t first, int64_t last, int64_t most,
                 c10::function_ref<void(const PairTile&)> visit);

/// The rule for one batch row. `documents` is document_start made contiguous, or undefined.
PairRule pair_rule(const AttentionProblem& problem, const at::Tensor& documents, int64_t batch);

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
  const float* padded_row(int64_t index, float* buffer) const {
    const T* source = row(index);
    if constexpr (std::is_same_v<T, float>) {
      if (step == 1 && dim % kLanes == 0) return source;
    }
    for (int64_t d = 0; d < dim; ++d) buffer[d] = static_cast<float>(source[d * step]);
    std::fill(buffer + dim, buffer + pad_lanes(dim), 0.0F);
    return buffer;
  }
};

/// Float32 rows of the tile's keys: pointers[x] to key x; buffer holds [keys][pad_lanes(D)] where copies are needed.
template <typename T>
void gather_rows(const HeadView<T>& head, const PairTile& tile, float* buffer, const float** pointers) {
  const int64_t width = pad_lanes(head.dim);
  for (int64_t x = 0; x < tile.keys; ++x) pointers[x] = head.padded_row(tile.key[x], buffer + x * width);
}

/// The tile's keys transposed to [D][pad_lanes(keys)], zero beyond the keys; pointers[d] to row d.
template <typename T>
void gather_transposed(const HeadView<T>& head, const PairTile& tile, float* buffer, const float** pointers) {
  const int64_t width = pad_lanes(tile.keys);
  for (int64_t x = 0; x < tile.keys; ++x) {
    const T* source = head.row(tile.key[x]);
    for (int64_t d = 0; d < head.dim; ++d) buffer[d * width + x] = static_cast<float>(source[d * head.step]);
  }
  for (int64_t d = 0; d < head.dim; ++d) {
    std::fill(buffer + d * width + tile.keys, buffer + (d + 1) * width, 0.0F);
    pointers[d] = buffer + d * width;
  }
}

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
