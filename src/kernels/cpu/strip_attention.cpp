#include "kernels/cpu/strip_attention.h"

namespace focus::kernels::cpu {

namespace {

bool supports(const AttentionProblem& problem) {
  const at::ScalarType type = problem.q.scalar_type();
  return problem.q.device().is_cpu() && (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

}  // namespace

AttentionKernel strip_attention_kernel() {
  return {"cpu-strips", supports, strip_forward, strip_backward};
}

}  // namespace focus::kernels::cpu
