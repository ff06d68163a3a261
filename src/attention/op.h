#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace focus {

/// Parameters of the attention op. Everything beside q, k and v that decides which pairs are allowed and how they
/// score.
///
/// Positions count over the Tk keys; the Tq queries are the last Tq of them (bottom-right aligned), so query row r has
/// position i = Tk - Tq + r. A pair (i, j) is allowed iff
///     j <= i  and  j >= document_start[i]  and  (layer_window == 0 or i - j < layer_window)  and
///     (key_group[j] is one of probes[i]  or  i - j <= window).
/// Without key_group (dense causal attention) the last line does not apply.
struct AttentionParams {
  /// int32 [B, Hg, Tk], Hg = 1 (shared by all heads) or Hkv: the list each key lies in, -1 for none.
  std::optional<at::Tensor> key_group;
  /// int32 [B, Hg, Tq, P]: the lists each query probes, -1 for an unused slot, no id twice in a row.
  std::optional<at::Tensor> probes;
  /// int32 [B, Tk]: first position of the document that each position belongs to; a start beyond the position itself
  /// marks padding (such a query has no key). Absent: one document from position 0.
  std::optional<at::Tensor> document_start;
  /// Keys at a distance of at most `window` are always allowed (w + 1 keys, self included).
  int64_t window = 0;
  /// The layer's own sliding window as in Hugging Face models: i - j < layer_window; 0 for none.
  int64_t layer_window = 0;
  /// Factor of q.k.
  double scale = 1.0;
  /// Scores become softcap * tanh(score / softcap) when > 0 (Gemma-2).
  double softcap = 0.0;
};

/// Sparse causal attention, registered as focus::attention (CPU, Meta, Autograd).
/// q [B, Hq, Tq, D], k and v [B, Hkv, Tk, D], Hq a multiple of Hkv, any strides; float32, bfloat16, float16 (float64 on
/// the reference path only). Returns (out [B, Hq, Tq, D] in q's dtype, lse float32 [B, Hq, Tq], natural logarithm).
/// Rows without any key give out = 0, lse = -inf and no gradient. Memory is O(T * P). Differentiable in q, k and v
/// (through out only). Throws focus::Error on shapes or dtypes that do not fit, naming them.
std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionParams& params);

/// The oracle: the same function in plain ATen with a dense mask, O(Tq * Tk) memory, differentiable by autograd, any
/// floating dtype. Never optimised.
std::tuple<at::Tensor, at::Tensor> reference_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                       const AttentionParams& params);

/// The dense mask of allowed pairs, bool [B, Hg, Tq, Tk] (Hg = 1 without key_group). For tests and small studies.
at::Tensor allowed_mask(int64_t batch, int64_t tq, int64_t tk, const AttentionParams& params);

/// Number of allowed pairs and of all causal pairs (same document), both summed over batch and the Hg list sets; their
/// ratio is "pairs kept". Counted from list sizes, never by a T x T mask.
struct PairCount {
  int64_t kept = 0;
  int64_t causal = 0;
};
PairCount count_pairs(int64_t batch, int64_t tq, int64_t tk, const AttentionParams& params);

}  // namespace focus
