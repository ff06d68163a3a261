#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "attention/op.h"

namespace focus {

/// Lets gradients through the hard mask of sparse attention, straight-through in probability space. With P_ij =
/// w_ij e^s_ij / Z_i, Z_i = sum_j w_ij e^s_ij and w in {0, 1} the hard mask, the loss changes with w_ij by
///     dL/dw_ij = e^s_ij / Z_i * (dP_ij - D_i),   dP_ij = dO_i.v_j,   D_i = dO_i.O_i,
/// also where w_ij = 0; the ratio e^s / Z is clamped at 4, since left-out scores may exceed all kept ones. This is
/// passed on to a soft affinity a_ij = sum_e p_ie m_je in place of w, for far pairs only: causal, in the same document
/// and the layer's own window, beyond `params.window` and not among the first `sinks` of the document.
///
/// `out` [B, Hq, T, D] and `lse` [B, Hq, T] are what attention() gave for q, k, v and `params`, whose lists are not
/// looked at; `probed` p and `membership` m are [B, Hg, T, E], Hg = Hkv or 1. Returns `out`; its gradient goes on to
/// `out` as it is (so to q, k and v by the op), and to p and m by the formula. Nothing but the arguments is kept for
/// the backward pass, which computes blocks of rows anew: no [T, T] tensor exists. Sums in float32 (float64 for
/// float64).
at::Tensor straight_through(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& probed, const at::Tensor& membership,
                            const AttentionParams& params, int64_t sinks);

/// Soft form of probing the best lists: scores [..., Hg, T, K] (probe_scores) -> sigmoid(sharpness * (score - theta)),
/// theta half way between the P-th best score of the row and the next, taken as a constant; P = probes[set]. All lists
/// probed: everything passes.
at::Tensor soft_probes(const at::Tensor& scores, const std::vector<int64_t>& probes, double sharpness);

}  // namespace focus
