#pragma once

#include <stdint.h>
#include <string.h>

/// Vectors of the instruction set that a source is compiled for (FOCUS_ISA, FOCUS_VECTOR bytes), in the compiler's
/// vector extensions. Everything has internal linkage: instruction sets must not share code.
#define FOCUS_INLINE inline __attribute__((always_inline))
// The loops over registers are kept out of their callers: inlined, the compiler tends to spill the accumulators.
#define FOCUS_APART __attribute__((noinline))

namespace focus::kernels::cpu::FOCUS_ISA {

namespace {

typedef float Vec __attribute__((vector_size(FOCUS_VECTOR)));
typedef int32_t IntVec __attribute__((vector_size(FOCUS_VECTOR)));
constexpr int64_t kVec = FOCUS_VECTOR / 4;

FOCUS_INLINE Vec load(const float* p) {
  Vec v;
  memcpy(&v, p, sizeof v);
  return v;
}

FOCUS_INLINE IntVec load_ints(const int32_t* p) {
  IntVec v;
  memcpy(&v, p, sizeof v);
  return v;
}

FOCUS_INLINE void store(float* p, Vec v) {
  memcpy(p, &v, sizeof v);
}

FOCUS_INLINE Vec splat(float x) {
  return x - Vec{};
}

FOCUS_INLINE Vec larger(Vec a, Vec b) {
  return a > b ? a : b;
}

// 2^x for x <= 0 (a rounding above 0 does no harm), to about 1 ulp: x = n + r with |r| <= 1/2 and a polynomial for 2^r
// (least largest relative error, degree 6). Exactly 0 from 2^-127 down, as for -inf; NaN stays NaN.
FOCUS_INLINE Vec exp2(Vec x) {
  constexpr float kMagic = 12583039.0F;  // 1.5 * 2^23 + 127: adding it rounds to an integer, biased as an exponent is
  const Vec floor = splat(-127.0F);
  const Vec clamped = floor > x ? floor : x;
  const Vec shifted = clamped + kMagic;
  const Vec r = clamped - (shifted - kMagic);
  Vec p = splat(1.535336196e-4F);
  p = p * r + 1.339887385e-3F;
  p = p * r + 9.618436918e-3F;
  p = p * r + 5.550332367e-2F;
  p = p * r + 2.402264774e-1F;
  p = p * r + 6.931471825e-1F;
  p = p * r + 1.0F;
  IntVec bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits <<= 23;
  Vec power;
  memcpy(&power, &bits, sizeof power);
  return p * power;
}

}  // namespace

}  // namespace focus::kernels::cpu::FOCUS_ISA
