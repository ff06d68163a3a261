// Compiled once per instruction set: FOCUS_ISA names the namespace, FOCUS_VECTOR the bytes of a vector. Inline
// functions of the standard library are kept out: the linker keeps one copy of each, which might be that of an
// instruction set this machine lacks.
#include "kernels/cpu/isa/strip_math.h"

#include <math.h>

#include "kernels/cpu/isa/vector.h"

namespace focus::kernels::cpu::FOCUS_ISA {

/// decode_math.cpp
void decode_step(const DecodeChunk& chunk, const float* q, float* scores, float* maximum, float* sum, float* out);

namespace {

constexpr int kVecs = 3;                   // vectors of a strip
constexpr int64_t kStrip = kVecs * kVec;   // lanes of a strip
constexpr int kWide = FOCUS_VECTOR == 64;  // 32 registers instead of 16
constexpr int kKeys = kWide ? 8 : 4;       // kKeys * kVecs accumulators for scores
constexpr int kColumns = kWide ? 4 : 2;    // kRowGroup * kColumns accumulators for sums of rows
constexpr int kRows = static_cast<int>(kRowGroup);
static_assert(kStrip % kRows == 0 && kKeys <= kKeySlack + 1);

// Scores of kKeys keys for the vectors kFirst .. kLast - 1 of the strip.
template <int kFirst, int kLast>
FOCUS_APART void product_tile(const float* columns, int64_t dim, const float* const* keys, float factor, float* out) {
  constexpr int kUsed = kLast - kFirst;
  Vec sum[kKeys][kUsed] = {};
  const float* key[kKeys];
  for (int r = 0; r < kKeys; ++r) key[r] = keys[r];
  columns += kFirst * kVec;
  out += kFirst * kVec;
#pragma GCC unroll 4
  for (int64_t d = 0; d < dim; ++d, columns += kStrip) {
    Vec column[kUsed];
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) column[v] = load(columns + v * kVec);
#pragma GCC unroll 8
    for (int r = 0; r < kKeys; ++r) {
      const Vec element = splat(key[r][d]);
#pragma GCC unroll 3
      for (int v = 0; v < kUsed; ++v) sum[r][v] += element * column[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kKeys; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kUsed; ++v) store(out + r * kStrip + v * kVec, sum[r][v] * factor);
  }
}

// kRows rows of results, kCount vectors of each, over `depth` rows of each of some segments: result[i] = result[i] *
// shrink[i] + sum_x weight(i, x) * rows[x], weight(i, x) = weights[i * kRowStep + x * kDepthStep]; the weights of the
// next segment are `stride` further.
template <int kCount, int64_t kRowStep, int64_t kDepthStep>
FOCUS_APART void sum_tile(int64_t segments, int64_t stride, int64_t depth, const float* weights,
                          const float* const* rows, int64_t column, const float* shrink, float* const* out) {
  Vec sum[kRows][kCount] = {};
  for (int64_t s = 0; s < segments; ++s, weights += stride, rows += depth) {
    const float* weight_row = weights;
#pragma GCC unroll 4
    for (int64_t x = 0; x < depth; ++x, weight_row += kDepthStep) {
      Vec row[kCount];
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) row[v] = load(rows[x] + column + v * kVec);
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) {
        const Vec weight = splat(weight_row[i * kRowStep]);
#pragma GCC unroll 4
        for (int v = 0; v < kCount; ++v) sum[i][v] += weight * row[v];
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      // The sum of this call is made by itself first: rounding errors of long sums stay small.
      float* cell = out[i] + column + v * kVec;
      store(cell, shrink != nullptr ? load(cell) * shrink[i] + sum[i][v] : load(cell) + sum[i][v]);
    }
  }
}

// The widest panels first. Calls f.run<vectors>(column).
template <typename F>
FOCUS_INLINE void for_panels(int64_t width, const F& f) {
  int64_t column = 0;
  for (; column + kColumns * kVec <= width; column += kColumns * kVec) f.template run<kColumns>(column);
  for (; column + 2 * kVec <= width; column += 2 * kVec) f.template run<2>(column);
  for (; column < width; column += kVec) f.template run<1>(column);
}

struct KeyRange {
  int64_t begin, end;
};

// Keys that all lanes may meet.
KeyRange common_range(const StripScores& strip) {
  KeyRange range{0, strip.keys};
  for (int64_t i = 0; i < kStrip; ++i) {
    range.begin = strip.begin[i] > range.begin ? strip.begin[i] : range.begin;
    range.end = strip.end[i] < range.end ? strip.end[i] : range.end;
  }
  if (range.begin > range.end) range.begin = range.end = strip.keys;
  return range;
}

// Keys that any of kRows lanes may meet.
KeyRange any_range(const int32_t* begin, const int32_t* end) {
  KeyRange range{INT32_MAX, 0};
  for (int i = 0; i < kRows; ++i) {
    if (begin[i] >= end[i]) continue;
    range.begin = begin[i] < range.begin ? begin[i] : range.begin;
    range.end = end[i] > range.end ? end[i] : range.end;
  }
  return range;
}

// Sets scores [keys from, keys to) to `value` where a lane may not meet the key.
void mask(const StripScores& strip, float* cells, int64_t from, int64_t to, float value) {
  IntVec begin[kVecs];
  IntVec end[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    begin[v] = load_ints(strip.begin + v * kVec);
    end[v] = load_ints(strip.end + v * kVec);
  }
  for (int64_t x = from; x < to; ++x) {
    const int32_t key = static_cast<int32_t>(x);
    for (int v = 0; v < kVecs; ++v) {
      float* cell = cells + x * kStrip + v * kVec;
      const IntVec allowed = (begin[v] <= key) & (end[v] > key);
      store(cell, allowed ? load(cell) : splat(value));
    }
  }
}

void cap_scores(const StripScores& strip) {
  for (int64_t x = 0; x < strip.keys * kStrip; ++x) strip.scores[x] = tanhf(strip.cap * strip.scores[x]);
}

void transpose(const float* const* rows, int64_t dim, float* out) {
  typedef float Four __attribute__((vector_size(16)));
  typedef int32_t Order __attribute__((vector_size(16)));
  int64_t d = 0;
  for (; d + 4 <= dim; d += 4) {
    for (int64_t i = 0; i < kStrip; i += 4) {
      Four row[4];
      for (int r = 0; r < 4; ++r) memcpy(&row[r], rows[i + r] + d, sizeof(Four));
      const Four a = __builtin_shuffle(row[0], row[1], Order{0, 4, 1, 5});
      const Four b = __builtin_shuffle(row[2], row[3], Order{0, 4, 1, 5});
      const Four c = __builtin_shuffle(row[0], row[1], Order{2, 6, 3, 7});
      const Four e = __builtin_shuffle(row[2], row[3], Order{2, 6, 3, 7});
      const Four column[4] = {__builtin_shuffle(a, b, Order{0, 1, 4, 5}), __builtin_shuffle(a, b, Order{2, 3, 6, 7}),
                              __builtin_shuffle(c, e, Order{0, 1, 4, 5}), __builtin_shuffle(c, e, Order{2, 3, 6, 7})};
      for (int r = 0; r < 4; ++r) memcpy(out + (d + r) * kStrip + i, &column[r], sizeof(Four));
    }
  }
  for (; d < dim; ++d) {
    for (int64_t i = 0; i < kStrip; ++i) out[d * kStrip + i] = rows[i][d];
  }
}

// Keys that any lane of vector v may meet.
KeyRange vector_range(const StripScores& strip, int v) {
  KeyRange range{INT32_MAX, 0};
  for (int64_t i = v * kVec; i < (v + 1) * kVec; ++i) {
    if (strip.begin[i] >= strip.end[i]) continue;
    range.begin = strip.begin[i] < range.begin ? strip.begin[i] : range.begin;
    range.end = strip.end[i] > range.end ? strip.end[i] : range.end;
  }
  return range;
}

void products(const StripScores& strip, const float* columns, int64_t dim, const float* const* keys, float factor) {
  KeyRange range[kVecs];
  for (int v = 0; v < kVecs; ++v) range[v] = vector_range(strip, v);
  for (int64_t x = 0; x < strip.keys; x += kKeys) {
    const auto meets = [&](int v) { return x < range[v].end && x + kKeys > range[v].begin; };
    const float* tile[kKeys];
    const float* const* rows = keys + x;
    if (x + kKeys > strip.keys) {
      for (int r = 0; r < kKeys; ++r) tile[r] = keys[x + r < strip.keys ? x + r : strip.keys - 1];
      rows = tile;
    }
    float* out = strip.scores + x * kStrip;
    // Ranges move along the lanes: at either end of the keys some vectors have nothing to meet.
    if (meets(0) && meets(2)) {
      product_tile<0, 3>(columns, dim, rows, factor, out);
    } else if (meets(0)) {
      meets(1) ? product_tile<0, 2>(columns, dim, rows, factor, out)
               : product_tile<0, 1>(columns, dim, rows, factor, out);
    } else if (meets(2)) {
      meets(1) ? product_tile<1, 3>(columns, dim, rows, factor, out)
               : product_tile<2, 3>(columns, dim, rows, factor, out);
    } else if (meets(1)) {
      product_tile<1, 2>(columns, dim, rows, factor, out);
    }
  }
}

void softmax_step(const StripScores& strip, float* maximum, float* sum, float* shrink) {
  if (strip.cap > 0.0F) cap_scores(strip);
  const KeyRange common = common_range(strip);
  mask(strip, strip.scores, 0, common.begin, -__builtin_inff());
  mask(strip, strip.scores, common.end, strip.keys, -__builtin_inff());
  Vec top[kVecs];
  Vec total[kVecs] = {};
  for (int v = 0; v < kVecs; ++v) top[v] = splat(-__builtin_inff());
  const float* s = strip.scores;
  for (int64_t x = 0; x < strip.keys; ++x, s += kStrip) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) top[v] = larger(load(s + v * kVec), top[v]);
  }
  // The product is rounded once for the maximum and not at all below: what it is off by cancels between the keys.
  for (int v = 0; v < kVecs; ++v) {
    const Vec former = load(maximum + v * kVec);
    top[v] = larger(top[v] * strip.multiplier, former);
    store(shrink + v * kVec, exp2(former - top[v]));
    store(maximum + v * kVec, top[v]);
  }
  float* p = strip.scores;
  for (int64_t x = 0; x < strip.keys; ++x, p += kStrip) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) {
      const Vec weight = exp2(load(p + v * kVec) * strip.multiplier - top[v]);
      total[v] += weight;
      store(p + v * kVec, weight);
    }
  }
  for (int v = 0; v < kVecs; ++v) store(sum + v * kVec, load(sum + v * kVec) * load(shrink + v * kVec) + total[v]);
}

void softmax_gradient(const StripScores& strip, float* grad, const float* lse, const float* delta, float scale) {
  if (strip.cap > 0.0F) cap_scores(strip);
  const KeyRange common = common_range(strip);
  for (const KeyRange& range : {KeyRange{0, common.begin}, KeyRange{common.end, strip.keys}}) {
    mask(strip, strip.scores, range.begin, range.end, -__builtin_inff());
    mask(strip, grad, range.begin, range.end, 0.0F);
  }
  Vec last[kVecs];
  Vec mean[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    last[v] = load(lse + v * kVec);
    mean[v] = load(delta + v * kVec);
  }
  for (int64_t x = 0; x < strip.keys; ++x) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) {
      float* score = strip.scores + x * kStrip + v * kVec;
      float* slope = grad + x * kStrip + v * kVec;
      const Vec s = load(score);
      const Vec weight = exp2(s * strip.multiplier - last[v]);
      Vec change = weight * scale * (load(slope) - mean[v]);
      if (strip.cap > 0.0F) {
        change = weight > 0.0F ? change * (1.0F - s * s) : Vec{};
      }
      store(score, weight);
      store(slope, change);
    }
  }
}

struct AddRows {
  KeyRange keys;
  int64_t first;  // lane
  const StripScores& strip;
  const float* shrink;
  const float* const* rows;
  float* const* out;
  template <int kCount>
  FOCUS_INLINE void run(int64_t column) const {
    sum_tile<kCount, 1, kStrip>(1, 0, keys.end - keys.begin, strip.scores + keys.begin * kStrip + first,
                                rows + keys.begin, column, shrink == nullptr ? nullptr : shrink + first, out + first);
  }
};

void add_rows(const StripScores& strip, const float* shrink, const float* const* rows, int64_t width,
              float* const* out) {
  for (int64_t first = 0; first < kStrip; first += kRows) {
    const KeyRange keys = any_range(strip.begin + first, strip.end + first);
    if (keys.begin < keys.end) for_panels(width, AddRows{keys, first, strip, shrink, rows, out});
  }
}

struct AddOuter {
  int64_t strips;
  int64_t stride;
  const float* weights;
  const float* const* rows;
  float* const* out;
  template <int kCount>
  FOCUS_INLINE void run(int64_t column) const {
    sum_tile<kCount, kStrip, 1>(strips, stride, kStrip, weights, rows, column, nullptr, out);
  }
};

void add_outer(int64_t keys, const float* weights, int64_t strips, int64_t strip_stride, const int32_t* begin,
               const int32_t* end, const float* const* rows, int64_t width, float* const* out) {
  for (int64_t x = 0; x < keys; x += kRows) {
    const auto meets = [&](int64_t s) { return begin[s] < end[s] && x + kRows > begin[s] && x < end[s]; };
    for (int64_t s = 0; s < strips;) {
      if (!meets(s)) {
        ++s;
        continue;
      }
      const int64_t first = s;
      while (s < strips && meets(s)) ++s;
      for_panels(width, AddOuter{s - first, strip_stride, weights + first * strip_stride + x * kStrip,
                                 rows + first * kStrip, out + x});
    }
  }
}

void widen(const uint16_t* from, int64_t count, float* to) {
  for (int64_t x = 0; x < count; ++x) {
    const uint32_t bits = static_cast<uint32_t>(from[x]) << 16;
    memcpy(to + x, &bits, sizeof bits);
  }
}

}  // namespace

const StripMath& strip_math() {
  static constexpr StripMath math = {FOCUS_ISA_NAME,   kStrip,   transpose, products, softmax_step,
                                     softmax_gradient, add_rows, add_outer, widen,    decode_step};
  return math;
}

}  // namespace focus::kernels::cpu::FOCUS_ISA
