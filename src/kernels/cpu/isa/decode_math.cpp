// Compiled once per instruction set, under the rules of strip_math.cpp.
#include <math.h>

#include "kernels/cpu/isa/strip_math.h"
#include "kernels/cpu/isa/vector.h"

namespace focus::kernels::cpu::FOCUS_ISA {

namespace {

constexpr int kMostHeads = 4;  // query heads that share one reading of a key
// Rows ahead of the one at work that are fetched: members of a list lie scattered, and the hardware guesses none of
// them.
constexpr int64_t kAhead = 8;

FOCUS_INLINE Vec load_row(const float* row, int64_t column) {
  return load(row + column);
}

FOCUS_INLINE Vec load_row(const uint16_t* row, int64_t column) {
  typedef uint16_t Halves __attribute__((vector_size(FOCUS_VECTOR / 2)));
  typedef uint32_t Words __attribute__((vector_size(FOCUS_VECTOR)));
  Halves halves;
  memcpy(&halves, row + column, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  Vec v;
  memcpy(&v, &words, sizeof v);
  return v;
}

FOCUS_INLINE float load_cell(const float* row, int64_t column) {
  return row[column];
}

FOCUS_INLINE float load_cell(const uint16_t* row, int64_t column) {
  const uint32_t bits = static_cast<uint32_t>(row[column]) << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

template <typename T>
FOCUS_INLINE void fetch(const T* row, int64_t size) {
  const char* bytes = reinterpret_cast<const char*>(row);
  for (int64_t x = 0; x < size * static_cast<int64_t>(sizeof(T)); x += 64) __builtin_prefetch(bytes + x);
}

FOCUS_INLINE float sum_lanes(Vec v) {
  float lane[kVec];
  memcpy(lane, &v, sizeof lane);
  for (int64_t half = kVec / 2; half > 0; half /= 2) {
    for (int64_t x = 0; x < half; ++x) lane[x] += lane[x + half];
  }
  return lane[0];
}

// scores[h][x] = q[h] . keys[x], h < kHeads; scores are `stride` apart.
template <int kHeads, typename T>
FOCUS_APART void dot_rows(const float* q, int64_t dim, const T* const* keys, int64_t count, float* scores,
                          int64_t stride) {
  const int64_t whole = dim / kVec * kVec;
  for (int64_t x = 0; x < count; ++x) {
    if (x + kAhead < count) fetch(keys[x + kAhead], dim);
    const T* key = keys[x];
    Vec sum[kHeads] = {};
    for (int64_t d = 0; d < whole; d += kVec) {
      const Vec part = load_row(key, d);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) sum[h] += part * load(q + h * dim + d);
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      float total = sum_lanes(sum[h]);
      for (int64_t d = whole; d < dim; ++d) total += load_cell(key, d) * q[h * dim + d];
      scores[h * stride + x] = total;
    }
  }
}

// out[d] = shrink * out[d] + sum_x weights[x] * rows[x][d] for kCount vectors from `column` on.
template <int kCount, typename T>
FOCUS_APART void add_panel(const float* weights, const T* const* rows, int64_t count, int64_t column, float shrink,
                           float* out) {
  constexpr int64_t kLine = 64 / sizeof(T);  // Elements of a cache line.
  Vec sum[kCount];
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) sum[v] = load(out + column + v * kVec) * shrink;
  for (int64_t x = 0; x < count; ++x) {
    const Vec weight = splat(weights[x]);
    if (x + kAhead < count) {
      __builtin_prefetch(rows[x + kAhead] + column);
      if (kCount * FOCUS_VECTOR > 64) __builtin_prefetch(rows[x + kAhead] + column + kLine);
      if (kCount * FOCUS_VECTOR > 128) {
        __builtin_prefetch(rows[x + kAhead] + column + 2 * kLine);
        __builtin_prefetch(rows[x + kAhead] + column + 3 * kLine);
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) sum[v] += weight * load_row(rows[x], column + v * kVec);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kCount; ++v) store(out + column + v * kVec, sum[v]);
}

template <typename T>
void add_weighted(const float* weights, const T* const* rows, int64_t count, int64_t dim, float shrink, float* out) {
  int64_t column = 0;
  for (; column + 8 * kVec <= dim; column += 8 * kVec) add_panel<8>(weights, rows, count, column, shrink, out);
  for (; column + 2 * kVec <= dim; column += 2 * kVec) add_panel<2>(weights, rows, count, column, shrink, out);
  for (; column + kVec <= dim; column += kVec) add_panel<1>(weights, rows, count, column, shrink, out);
  for (; column < dim; ++column) {
    float sum = out[column] * shrink;
    for (int64_t x = 0; x < count; ++x) sum += weights[x] * load_cell(rows[x], column);
    out[column] = sum;
  }
}

// The scores of one head become weights; its state comes up to date. Returns what earlier sums are multiplied by.
float soften(const DecodeChunk& chunk, float* scores, float* maximum, float* sum) {
  const int64_t whole = chunk.count / kVec * kVec;
  if (chunk.cap > 0.0F) {
    for (int64_t x = 0; x < chunk.count; ++x) scores[x] = tanhf(chunk.cap * scores[x]);
  }
  float top = *maximum;
  for (int64_t x = 0; x < chunk.count; ++x) {
    const float score = scores[x] * chunk.multiplier;
    top = score > top ? score : top;
  }
  Vec total = {};
  for (int64_t x = 0; x < whole; x += kVec) {
    const Vec weight = exp2(load(scores + x) * chunk.multiplier - top);
    total += weight;
    store(scores + x, weight);
  }
  float tail[kVec];
  float rest = 0.0F;
  if (whole < chunk.count) {
    for (int64_t x = 0; x < kVec; ++x) tail[x] = whole + x < chunk.count ? scores[whole + x] : -__builtin_inff();
    store(tail, exp2(load(tail) * chunk.multiplier - top));
    for (int64_t x = whole; x < chunk.count; ++x) {
      scores[x] = tail[x - whole];
      rest += scores[x];
    }
  }
  float shrink[kVec];
  store(shrink, exp2(splat(*maximum - top)));
  *maximum = top;
  *sum = *sum * shrink[0] + sum_lanes(total) + rest;
  return shrink[0];
}

template <typename T>
void step(const DecodeChunk& chunk, const float* q, float* scores, float* maximum, float* sum, float* out) {
  const auto* keys = reinterpret_cast<const T* const*>(chunk.keys);
  const auto* values = reinterpret_cast<const T* const*>(chunk.values);
  int64_t h = 0;
  const int64_t n = chunk.count;
  for (; h + kMostHeads <= chunk.heads; h += kMostHeads) {
    dot_rows<kMostHeads>(q + h * chunk.dim, chunk.dim, keys, n, scores + h * n, n);
  }
  for (; h + 2 <= chunk.heads; h += 2) dot_rows<2>(q + h * chunk.dim, chunk.dim, keys, n, scores + h * n, n);
  for (; h < chunk.heads; ++h) dot_rows<1>(q + h * chunk.dim, chunk.dim, keys, n, scores + h * n, n);
  for (h = 0; h < chunk.heads; ++h) {
    float* row = scores + h * n;
    if (chunk.factor != 1.0F) {
      for (int64_t x = 0; x < n; ++x) row[x] *= chunk.factor;
    }
    const float shrink = soften(chunk, row, maximum + h, sum + h);
    add_weighted(row, values, n, chunk.value_dim, shrink, out + h * chunk.value_dim);
  }
}

}  // namespace

void decode_step(const DecodeChunk& chunk, const float* q, float* scores, float* maximum, float* sum, float* out);

void decode_step(const DecodeChunk& chunk, const float* q, float* scores, float* maximum, float* sum, float* out) {
  if (chunk.bfloat16) {
    step<uint16_t>(chunk, q, scores, maximum, sum, out);
  } else {
    step<float>(chunk, q, scores, maximum, sum, out);
  }
}

}  // namespace focus::kernels::cpu::FOCUS_ISA
