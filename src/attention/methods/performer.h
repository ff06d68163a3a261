#pragma once

#include <cstdint>
#include <string>

#include "attention/methods/document_attention.h"

namespace focus {

/// Performer (Choromanski et al. 2021): linear attention by positive orthogonal random features, FAVOR+, in its causal
/// form (prefix sums, appendix B.1). Features of x = sqrt(scale) q or sqrt(scale) k (lemma 1, equation 7):
///     phi(x) = exp(w_r . x - |x|^2 / 2) / sqrt(m),  r = 1 .. m,
/// so that E phi(q) . phi(k) = exp(scale q.k); w in blocks of D orthogonal directions (section 2.4), each as long as a
/// Gaussian vector; drawn from (seed, layer). out_i = phi(q_i) S_i / (phi(q_i) . z_i), S_i = sum over j <= i of
/// phi(k_j) v_j, z_i that of phi(k_j). Sums are in float64; in place of the paper's stabilising constants the largest
/// exponent of the keys up to i is taken out of row i.
/// No pairs are scored. Counted is what costs as much: a pair of one query head costs 2 D multiplications, features and
/// sums m * 2 D for a query of each query head and as many for a key of each KV head, hence m pairs a token for each
/// head of both kinds. On a short text that is more than full attention has.
class Performer : public DocumentAttention {
 public:
  Performer(int64_t features, uint64_t seed);
  std::string name() const override { return "performer"; }

 protected:
  /// Throws Error for a layer with softcap, or with a sliding window that the text exceeds.
  at::Tensor attend_document(const DocumentView& document, int64_t& kept) override;

 private:
  int64_t features_;
  uint64_t seed_;
};

/// w of the features: [m, dim], float64, rows of each block of `dim` orthogonal.
at::Tensor orthogonal_features(int64_t features, int64_t dim, uint64_t seed);

}  // namespace focus
