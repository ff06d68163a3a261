#pragma once

#include <cstdint>

/// Dense arithmetic on small tiles in scratch memory: the inner loops of the tiled attention kernel. Rows are given by
/// pointers, so that rows scattered over a larger array take part without being copied.
namespace focus::kernels::cpu {

/// Widths of tiles (keys, and the padded head size) are multiples of this.
constexpr int64_t kLanes = 16;

constexpr int64_t pad_lanes(int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

/// The instruction set that the functions below use on this machine: "avx2" or "baseline".
const char* instruction_set();

/// c[i][j] = alpha * sum_x a[i][x * a_step] * b[x][j]  (+ c[i][j] when accumulate), i < m, j < n, x < depth.
/// n is a multiple of kLanes. c rows must not overlap.
void multiply(int64_t m, int64_t n, int64_t depth, float alpha, const float* const* a, int64_t a_step,
              const float* const* b, float* const* c, bool accumulate);

/// One tile of scores [queries * group rows][width], row r belonging to query r / group, of which keys
/// begin[query] .. end[query] - 1 are allowed. A query without keys has begin == end.
struct ScoreTile {
  int64_t queries = 0;
  int64_t group = 1;
  int64_t width = 0;        ///< multiple of kLanes
  float* scores = nullptr;  ///< row r at scores + r * width
  const int32_t* begin = nullptr;
  const int32_t* end = nullptr;
  float softcap = 0.0F;
};

/// One step of online softmax: turns scores s into exp(s - m_new), 0 where not allowed, and brings the states of the
/// rows (running maximum m, sum l, unnormalised output of dim floats) to the new maximum. States are given per row by
/// pointers.
void softmax_step(const ScoreTile& tile, float* const* maximum, float* const* sum, float* const* out, int64_t dim);

/// Backward: scores become A = exp(s - lse), and grad (dL/dA, same layout) becomes dL/ds = A * (dL/dA - delta), times
/// 1 - (s / softcap)^2 under a softcap; both 0 where not allowed. lse and delta hold one value a row.
void softmax_gradient(const ScoreTile& tile, float* grad, const float* const* lse, const float* const* delta);

}  // namespace focus::kernels::cpu
