// Compiled once per instruction set, with FOCUS_ISA naming the namespace. Inline functions of the standard library are
// kept out: the linker keeps one copy of each, which might be that of an instruction set this machine lacks.
#include "kernels/cpu/isa/tile_math.h"

#include <math.h>
#include <string.h>

#define FOCUS_INLINE inline __attribute__((always_inline))

namespace focus::kernels::cpu::FOCUS_ISA {

namespace {

typedef float Vec __attribute__((vector_size(32)));
typedef int32_t IntVec __attribute__((vector_size(32)));
constexpr int64_t kVec = 8;
constexpr int64_t kRows = 6;  // kRows * kLanes / kVec accumulators stay in 16 registers
constexpr float kNone = -__builtin_inff();

FOCUS_INLINE Vec load(const float* p) {
  Vec v;
  memcpy(&v, p, sizeof v);
  return v;
}

FOCUS_INLINE void store(float* p, Vec v) {
  memcpy(p, &v, sizeof v);
}

FOCUS_INLINE Vec splat(float x) {
  return Vec{x, x, x, x, x, x, x, x};
}

FOCUS_INLINE float sum(Vec v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// exp to about 1 ulp: 2^n * e^r with |r| <= ln 2 / 2 and a polynomial for e^r (coefficients of Cephes' expf). Exactly 0
// below the smallest normal number, as for -inf; NaN stays NaN. Scores never exceed the maximum they are taken against
// by more than rounding, so there is no guard above.
FOCUS_INLINE Vec exponential(Vec x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLowest = -87.33654F;
  const Vec clamped = x < kLowest ? splat(kLowest) : x;
  const Vec shifted = clamped * 1.44269504F + kMagic;
  const Vec n = shifted - kMagic;
  const Vec r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  Vec p = splat(1.9875691500e-4F);
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  IntVec bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + (127 << 23);  // the low bits of `shifted` hold n
  Vec power;
  memcpy(&power, &bits, sizeof power);
  return x < kLowest ? splat(0.0F) : p * power;
}

template <int64_t kCount>
FOCUS_INLINE void multiply_rows(int64_t depth, float alpha, const float* const* a, int64_t a_step,
                                const float* const* b, float* const* c, bool accumulate, int64_t j) {
  Vec low[kCount] = {};
  Vec high[kCount] = {};
  for (int64_t x = 0; x < depth; ++x) {
    const Vec b_low = load(b[x] + j);
    const Vec b_high = load(b[x] + j + kVec);
#pragma GCC unroll 6
    for (int64_t i = 0; i < kCount; ++i) {
      const Vec factor = splat(a[i][x * a_step]);
      low[i] += factor * b_low;
      high[i] += factor * b_high;
    }
  }
#pragma GCC unroll 6
  for (int64_t i = 0; i < kCount; ++i) {
    float* out = c[i] + j;
    low[i] *= alpha;
    high[i] *= alpha;
    if (accumulate) {
      low[i] += load(out);
      high[i] += load(out + kVec);
    }
    store(out, low[i]);
    store(out + kVec, high[i]);
  }
}

void fill(float* first, float* last, float value) {
  for (; first < last; ++first) *first = value;
}

// Caps the allowed scores of a row, in place.
void cap_scores(float* row, int64_t begin, int64_t end, float softcap) {
  for (int64_t x = begin; x < end; ++x) row[x] = softcap * tanhf(row[x] / softcap);
}

// Fills the cells of [lane_begin, lane_end) outside [begin, end).
void mask_edges(float* row, int64_t lane_begin, int64_t begin, int64_t end, int64_t lane_end, float value) {
  fill(row + lane_begin, row + begin, value);
  fill(row + end, row + lane_end, value);
}

void zero_outside(float* row, int64_t lane_begin, int64_t lane_end, int64_t width) {
  fill(row, row + lane_begin, 0.0F);
  fill(row + lane_end, row + width, 0.0F);
}

}  // namespace

void multiply(int64_t m, int64_t n, int64_t depth, float alpha, const float* const* a, int64_t a_step,
              const float* const* b, float* const* c, bool accumulate) {
  for (int64_t j = 0; j < n; j += kLanes) {
    int64_t i = 0;
    for (; i + kRows <= m; i += kRows) {
      multiply_rows<kRows>(depth, alpha, a + i, a_step, b, c + i, accumulate, j);
    }
    for (; i + 2 <= m; i += 2) multiply_rows<2>(depth, alpha, a + i, a_step, b, c + i, accumulate, j);
    if (i < m) multiply_rows<1>(depth, alpha, a + i, a_step, b, c + i, accumulate, j);
  }
}

void softmax_step(const ScoreTile& tile, float* const* maximum, float* const* sums, float* const* out, int64_t dim) {
  for (int64_t r = 0; r < tile.queries * tile.group; ++r) {
    float* row = tile.scores + r * tile.width;
    const int64_t begin = tile.begin[r / tile.group];
    const int64_t end = tile.end[r / tile.group];
    if (begin >= end) {
      fill(row, row + tile.width, 0.0F);
      continue;
    }
    if (tile.softcap > 0.0F) cap_scores(row, begin, end, tile.softcap);
    const int64_t lane_begin = begin / kVec * kVec;
    const int64_t lane_end = (end + kVec - 1) / kVec * kVec;
    mask_edges(row, lane_begin, begin, end, lane_end, kNone);
    zero_outside(row, lane_begin, lane_end, tile.width);

    Vec lanes = splat(kNone);
    for (int64_t x = lane_begin; x < lane_end; x += kVec) {
      const Vec s = load(row + x);
      lanes = s > lanes ? s : lanes;
    }
    float top = *maximum[r];
    for (int64_t x = 0; x < kVec; ++x) top = lanes[x] > top ? lanes[x] : top;

    Vec total = {};
    for (int64_t x = lane_begin; x < lane_end; x += kVec) {
      const Vec p = exponential(load(row + x) - top);
      total += p;
      store(row + x, p);
    }
    if (top != *maximum[r]) {
      const float shrink = expf(*maximum[r] - top);
      *sums[r] *= shrink;
      for (int64_t d = 0; d < dim; d += kVec) store(out[r] + d, load(out[r] + d) * shrink);
      *maximum[r] = top;
    }
    *sums[r] += sum(total);
  }
}

void softmax_gradient(const ScoreTile& tile, float* grad, const float* const* lse, const float* const* delta) {
  for (int64_t r = 0; r < tile.queries * tile.group; ++r) {
    float* row = tile.scores + r * tile.width;
    float* grad_row = grad + r * tile.width;
    const int64_t begin = tile.begin[r / tile.group];
    const int64_t end = tile.end[r / tile.group];
    if (begin >= end) {
      fill(row, row + tile.width, 0.0F);
      fill(grad_row, grad_row + tile.width, 0.0F);
      continue;
    }
    const int64_t lane_begin = begin / kVec * kVec;
    const int64_t lane_end = (end + kVec - 1) / kVec * kVec;
    if (tile.softcap > 0.0F) cap_scores(row, begin, end, tile.softcap);
    mask_edges(row, lane_begin, begin, end, lane_end, kNone);
    mask_edges(grad_row, lane_begin, begin, end, lane_end, 0.0F);
    zero_outside(row, lane_begin, lane_end, tile.width);
    zero_outside(grad_row, lane_begin, lane_end, tile.width);
    for (int64_t x = lane_begin; x < lane_end; x += kVec) {
      const Vec s = load(row + x);
      const Vec p = exponential(s - *lse[r]);
      Vec ds = p * (load(grad_row + x) - *delta[r]);
      if (tile.softcap > 0.0F) {
        const Vec ratio = s / tile.softcap;
        ds = p > 0.0F ? ds * (1.0F - ratio * ratio) : splat(0.0F);
      }
      store(row + x, p);
      store(grad_row + x, ds);
    }
  }
}

}  // namespace focus::kernels::cpu::FOCUS_ISA
