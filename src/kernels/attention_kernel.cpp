#include "kernels/attention_kernel.h"

#include "base/error.h"
#include "kernels/cpu/strip_attention.h"

namespace focus::kernels {

const std::vector<AttentionKernel>& attention_kernels() {
  static const std::vector<AttentionKernel> kernels = {cpu::strip_attention_kernel()};
  return kernels;
}

const AttentionKernel& select_attention_kernel(const AttentionProblem& problem) {
  for (const AttentionKernel& kernel : attention_kernels()) {
    if (kernel.supports(problem)) return kernel;
  }
  fail("attention: no kernel for dtype {} on device {} (float32, bfloat16 and float16 on the CPU)",
       c10::toString(problem.q.scalar_type()), problem.q.device().str());
}

}  // namespace focus::kernels
