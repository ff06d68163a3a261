#pragma once

#include "attention/op.h"
#include "kernels/attention_kernel.h"

namespace focus {

/// Throws Error, naming shapes or dtypes, unless the arguments of the attention op fit together (see attention/op.h).
/// Looks at sizes and dtypes only; the ids inside key_group and probes are checked where they are read.
void check_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionParams& params);

/// The checks of key_group, probes and document_start alone.
void check_pairs(int64_t batch, int64_t kv_heads, int64_t tq, int64_t tk, const AttentionParams& params);

}  // namespace focus
