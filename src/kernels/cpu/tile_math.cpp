#include "kernels/cpu/tile_math.h"

#include "kernels/cpu/isa/tile_math.h"

namespace focus::kernels::cpu {

namespace {

bool has_avx2() {
#ifdef FOCUS_HAVE_AVX2
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
#else
  return false;
#endif
}

}  // namespace

#ifdef FOCUS_HAVE_AVX2
#define FOCUS_CALL(function, ...) (has_avx2() ? avx2::function(__VA_ARGS__) : baseline::function(__VA_ARGS__))
#else
#define FOCUS_CALL(function, ...) baseline::function(__VA_ARGS__)
#endif

const char* instruction_set() {
  return has_avx2() ? "avx2" : "baseline";
}

void multiply(int64_t m, int64_t n, int64_t depth, float alpha, const float* const* a, int64_t a_step,
              const float* const* b, float* const* c, bool accumulate) {
  FOCUS_CALL(multiply, m, n, depth, alpha, a, a_step, b, c, accumulate);
}

void softmax_step(const ScoreTile& tile, float* const* maximum, float* const* sum, float* const* out, int64_t dim) {
  FOCUS_CALL(softmax_step, tile, maximum, sum, out, dim);
}

void softmax_gradient(const ScoreTile& tile, float* grad, const float* const* lse, const float* const* delta) {
  FOCUS_CALL(softmax_gradient, tile, grad, lse, delta);
}

}  // namespace focus::kernels::cpu
