#include "attention/routing/rows.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace focus {

PackedMatrix::PackedMatrix(int64_t depth_, int64_t columns_)
    : depth(depth_), columns(columns_), values(static_cast<size_t>(padded_columns() * depth_), 0.0F) {}

void PackedMatrix::set(int64_t row, int64_t column, float value) {
  values[static_cast<size_t>(((column / kPanel) * depth + row) * kPanel + column % kPanel)] = value;
}

namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;

template <int kWidth>
struct Lanes {
  typedef float Type __attribute__((vector_size(kWidth * 4)));
  typedef float Loose __attribute__((vector_size(kWidth * 4), aligned(4), may_alias));
};

// Rows [r, r + kRows) times one panel. Products and sums are kept apart (no fused multiply-add), so every width agrees.
template <int kWidth, int kRows>
inline __attribute__((always_inline)) void multiply_panel(const float* a, int64_t a_stride, const float* panel,
                                                          int64_t depth, float* out, int64_t out_stride) {
  using Vector = typename Lanes<kWidth>::Type;
  using Loose = typename Lanes<kWidth>::Loose;
  constexpr int kVectors = static_cast<int>(kPanel) / kWidth;
  Vector sum[kRows][kVectors] = {};
  for (int64_t x = 0; x < depth; ++x) {
    for (int v = 0; v < kVectors; ++v) {
      const Vector w = *reinterpret_cast<const Loose*>(panel + x * kPanel + v * kWidth);
      for (int r = 0; r < kRows; ++r) {
        const Vector product = a[r * a_stride + x] * w;
        sum[r][v] += product;
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) *reinterpret_cast<Loose*>(out + r * out_stride + v * kWidth) = sum[r][v];
  }
}

template <int kWidth, int kRows>
inline __attribute__((always_inline)) void multiply_all(const float* a, int64_t rows, int64_t a_stride,
                                                        const PackedMatrix& matrix, float* out, int64_t out_stride) {
  const int64_t panels = matrix.padded_columns() / kPanel;
  for (int64_t p = 0; p < panels; ++p) {
    const float* panel = matrix.values.data() + p * matrix.depth * kPanel;
    int64_t r = 0;
    for (; r + kRows <= rows; r += kRows) {
      multiply_panel<kWidth, kRows>(a + r * a_stride, a_stride, panel, matrix.depth, out + r * out_stride + p * kPanel,
                                    out_stride);
    }
    for (; r < rows; ++r) {
      multiply_panel<kWidth, 1>(a + r * a_stride, a_stride, panel, matrix.depth, out + r * out_stride + p * kPanel,
                                out_stride);
    }
  }
}

using Multiply = void (*)(const float*, int64_t, int64_t, const PackedMatrix&, float*, int64_t);

void multiply_baseline(const float* a, int64_t rows, int64_t a_stride, const PackedMatrix& matrix, float* out,
                       int64_t out_stride) {
  multiply_all<4, 2>(a, rows, a_stride, matrix, out, out_stride);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void multiply_avx2(const float* a, int64_t rows, int64_t a_stride,
                                                   const PackedMatrix& matrix, float* out, int64_t out_stride) {
  multiply_all<8, 4>(a, rows, a_stride, matrix, out, out_stride);
}

__attribute__((target("avx512f"))) void multiply_avx512(const float* a, int64_t rows, int64_t a_stride,
                                                        const PackedMatrix& matrix, float* out, int64_t out_stride) {
  multiply_all<16, 8>(a, rows, a_stride, matrix, out, out_stride);
}
#endif

Multiply choose_multiply() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_avx512;
  if (__builtin_cpu_supports("avx2")) return multiply_avx2;
#endif
  return multiply_baseline;
}

}  // namespace

void multiply_rows(const float* a, int64_t rows, int64_t a_stride, const PackedMatrix& matrix, float* out,
                   int64_t out_stride) {
  static const Multiply multiply = choose_multiply();
  multiply(a, rows, a_stride, matrix, out, out_stride);
}

int64_t argmax_row(const float* values, int64_t first, int64_t n) {
  constexpr int kWidth = 4;
  using Vector = Lanes<kWidth>::Type;
  using Loose = Lanes<kWidth>::Loose;
  int64_t best = first;
  int64_t i = first;
  if (n - first >= 2 * kWidth) {
    // Lane-wise maxima first; then the first position that holds the overall one.
    Vector largest = *reinterpret_cast<const Loose*>(values + i);
    for (i += kWidth; i + kWidth <= n; i += kWidth) {
      const Vector x = *reinterpret_cast<const Loose*>(values + i);
      largest = x > largest ? x : largest;
    }
    float top = std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
    for (; i < n; ++i) top = std::max(top, values[i]);
    best = std::find(values + first, values + n, top) - values;
    return best < n ? best : first;
  }
  for (; i < n; ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

void top_row(const float* values, int64_t first, int64_t n, int64_t count, std::vector<int32_t>& indices) {
  constexpr int64_t kInsertionLimit = 32;
  if (count > kInsertionLimit) {
    indices.resize(static_cast<size_t>(n - first));
    std::iota(indices.begin(), indices.end(), static_cast<int32_t>(first));
    std::partial_sort(indices.begin(), indices.begin() + count, indices.end(), [values](int32_t x, int32_t y) {
      return values[x] != values[y] ? values[x] > values[y] : x < y;
    });
    indices.resize(static_cast<size_t>(count));
    return;
  }
  float kept[kInsertionLimit];
  indices.resize(static_cast<size_t>(count));
  int64_t size = 0;
  for (int64_t i = first; i < n; ++i) {
    const float value = values[i];
    if (size == count && !(value > kept[count - 1])) continue;
    int64_t at = size < count ? size++ : count - 1;
    for (; at > 0 && value > kept[at - 1]; --at) {
      kept[at] = kept[at - 1];
      indices[static_cast<size_t>(at)] = indices[static_cast<size_t>(at - 1)];
    }
    kept[at] = value;
    indices[static_cast<size_t>(at)] = static_cast<int32_t>(i);
  }
}

}  // namespace focus
