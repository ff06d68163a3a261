#pragma once

#include "kernels/attention_kernel.h"

namespace focus::kernels::cpu {

/// The portable CPU kernel: tiles of allowed pairs in float32, online softmax in place, any strides. float32, bfloat16,
/// float16. Results do not depend on the number of threads.
AttentionKernel tiled_attention_kernel();

AttentionOutput tiled_forward(const AttentionProblem& problem);
AttentionGradient tiled_backward(const AttentionProblem& problem, const AttentionOutput& saved,
                                 const at::Tensor& grad_out);

}  // namespace focus::kernels::cpu
