#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace focus::kernels {

/// The attention op after its arguments have been checked (see attention/op.h for the meaning of every field). Tensors
/// may have any strides, the index tensors included.
struct AttentionProblem {
  at::Tensor q;                              ///< [B, Hq, Tq, D]
  at::Tensor k;                              ///< [B, Hkv, Tk, D]
  at::Tensor v;                              ///< [B, Hkv, Tk, D]
  std::optional<at::Tensor> key_group;       ///< int32 [B, Hg, Tk]; absent: dense causal.
  std::optional<at::Tensor> probes;          ///< int32 [B, Hg, Tq, P], present together with key_group.
  std::optional<at::Tensor> document_start;  ///< int32 [B, Tk]
  int64_t window = 0;
  int64_t layer_window = 0;
  float scale = 1.0F;
  float softcap = 0.0F;

  int64_t batch() const { return q.size(0); }
  int64_t heads() const { return q.size(1); }
  int64_t kv_heads() const { return k.size(1); }
  int64_t group() const { return heads() / kv_heads(); }  ///< Query heads that share a KV head.
  int64_t tq() const { return q.size(2); }
  int64_t tk() const { return k.size(2); }
  int64_t head_dim() const { return q.size(3); }
  int64_t list_sets() const { return key_group ? key_group->size(1) : 1; }  ///< Hg
};

struct AttentionOutput {
  at::Tensor out;  ///< [B, Hq, Tq, D] in q's dtype, contiguous.
  at::Tensor lse;  ///< float32 [B, Hq, Tq], natural logarithm, -inf for rows without keys.
};

struct AttentionGradient {
  at::Tensor dq;  ///< [B, Hq, Tq, D]
  at::Tensor dk;  ///< [B, Hkv, Tk, D]
  at::Tensor dv;  ///< [B, Hkv, Tk, D]
};

/// One implementation of the op on one kind of device. A tuned kernel is a new entry of attention_kernels(): callers
/// only ever ask select_attention_kernel().
struct AttentionKernel {
  std::string name;
  /// Whether this machine and kernel can do this problem.
  bool (*supports)(const AttentionProblem& problem);
  AttentionOutput (*forward)(const AttentionProblem& problem);
  /// Gradient of `out` alone, from the saved output and total lse.
  AttentionGradient (*backward)(const AttentionProblem& problem, const AttentionOutput& saved,
                                const at::Tensor& grad_out);
};

/// All kernels compiled in, the preferred first.
const std::vector<AttentionKernel>& attention_kernels();

/// The first kernel that supports the problem. Throws Error, naming device and dtype, when there is none.
const AttentionKernel& select_attention_kernel(const AttentionProblem& problem);

}  // namespace focus::kernels
