#pragma once

#include <cstdint>
#include <vector>

namespace focus {

/// A matrix [depth, columns] packed for multiply_rows: panels of kPanel columns, each [depth][kPanel], the last one
/// padded with zeros.
struct PackedMatrix {
  static constexpr int64_t kPanel = 16;
  int64_t depth = 0;
  int64_t columns = 0;
  std::vector<float> values;

  PackedMatrix() = default;
  PackedMatrix(int64_t depth_, int64_t columns_);
  int64_t padded_columns() const { return (columns + kPanel - 1) / kPanel * kPanel; }
  void set(int64_t row, int64_t column, float value);
};

/// out[r, c] = sum over x of a[r, x] * matrix[x, c], x ascending, one rounded multiplication and one rounded addition a
/// step. So a row's result depends on that row alone, bit for bit, whatever the number of rows or the instruction set:
/// what makes routing the same in one pass, in chunks and token by token (a library's matrix product gives no such
/// promise). a [rows, depth] with row stride `a_stride`; out [rows, padded_columns()] with row stride `out_stride`.
void multiply_rows(const float* a, int64_t rows, int64_t a_stride, const PackedMatrix& matrix, float* out,
                   int64_t out_stride);

/// Index of the largest of values[first .. n), the lowest on ties; values must not be NaN.
int64_t argmax_row(const float* values, int64_t first, int64_t n);

/// The indices of the `count` largest of values[first .. n), largest first, the lower index first on ties.
void top_row(const float* values, int64_t first, int64_t n, int64_t count, std::vector<int32_t>& indices);

}  // namespace focus
