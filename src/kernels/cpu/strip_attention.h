#pragma once

#include "kernels/attention_kernel.h"

namespace focus::kernels::cpu {

/// The CPU kernel: strips of query rows against runs of keys in float32, online softmax in place, any strides. float32,
/// bfloat16, float16. Results do not depend on the number of threads. Memory beside the results is O(T * P) for the
/// lists, and for the gradients two float32 arrays as large as k.
AttentionKernel strip_attention_kernel();

AttentionOutput strip_forward(const AttentionProblem& problem);
AttentionGradient strip_backward(const AttentionProblem& problem, const AttentionOutput& saved,
                                 const at::Tensor& grad_out);

}  // namespace focus::kernels::cpu
