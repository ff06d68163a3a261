#pragma once

#include "kernels/cpu/tile_math.h"

/// The functions of kernels/cpu/tile_math.h for one instruction set each.
#define FOCUS_DECLARE_TILE_MATH(isa)                                                                                  \
  namespace isa {                                                                                                     \
  void multiply(int64_t m, int64_t n, int64_t depth, float alpha, const float* const* a, int64_t a_step,              \
                const float* const* b, float* const* c, bool accumulate);                                             \
  void softmax_step(const ScoreTile& tile, float* const* maximum, float* const* sum, float* const* out, int64_t dim); \
  void softmax_gradient(const ScoreTile& tile, float* grad, const float* const* lse, const float* const* delta);      \
  }

namespace focus::kernels::cpu {

FOCUS_DECLARE_TILE_MATH(baseline)
FOCUS_DECLARE_TILE_MATH(avx2)

}  // namespace focus::kernels::cpu

#undef FOCUS_DECLARE_TILE_MATH
