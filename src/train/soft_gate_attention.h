#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "attention/method.h"
#include "attention/routing/config.h"
#include "attention/routing/router.h"
#include "train/group_balance.h"

namespace focus {

/// What decides scores under the soft gate, beside q, k, v and the memberships.
struct SoftGateParams {
  int64_t window = 0;      ///< Pairs with i - j <= window are local.
  int64_t sinks = 0;       ///< The first positions of a document are local to every query, as in the hard mask.
  double sharpness = 1.0;  ///< lambda.
  double scale = 1.0;
  double softcap = 0.0;
  int64_t layer_window = 0;                  ///< Pairs with i - j >= layer_window have no weight; 0 for none.
  std::optional<at::Tensor> document_start;  ///< int [B, T], as in AttentionParams.
};

/// Causal attention whose scores are gated by how much two tokens share groups (the paper, Eq. 2):
///     s_ij = scale * q_i.k_j * (local_ij + (1 - local_ij) * sigmoid(lambda * g_i.g_j)),
/// then the softcap, if any, and a softmax over the causal pairs of the document. q [B, Hq, T, D]; k, v
/// [B, Hkv, T, D]; memberships g [B, Hg, T, K], Hg = Hkv or 1; any floating dtype, computed in float32 (float64 for
/// float64) -> [B, Hq, T, D] in q's dtype. A row without a key gives 0. Differentiable once in all four tensors. Only
/// they are kept for the backward pass, which computes blocks of rows anew: no [T, T] tensor exists in either pass.
at::Tensor soft_gate_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& memberships, const SoftGateParams& params);

/// Training form of the paper's routing: memberships by Sinkhorn over the tokens of the sequence or another normaliser,
/// all pairs weighted by the soft gate. Gradients flow to the projections and centroids it was given and to earlier
/// layers, with GroupMitigation::kStopGradient not through the memberships to these. Sinkhorn is not causal: its column
/// sums read later tokens.
class SoftGateAttention : public AttentionMethod {
 public:
  /// `routers` hold projection and centroids (for GroupNormaliser::kPotentials potentials too), and must outlive the
  /// method; layers that they lack attend densely.
  SoftGateAttention(const RoutingConfig& config, double sharpness, const std::map<int64_t, LayerRouter>& routers,
                    const GroupBalance& balance = {});

  std::string name() const override { return "soft-gate"; }
  bool is_causal() const override { return balance_.normaliser != GroupNormaliser::kSinkhorn; }
  /// Throws Error when given a cache: the whole sequence must be there.
  at::Tensor attend(const AttentionInput& input) override;
  std::unique_ptr<LayerCache> make_cache(int64_t layer, int64_t batch, int64_t capacity) const override;
  /// The soft gate drops no pair.
  PairCount pairs() const override { return pairs_; }
  void reset_pairs() override { pairs_ = {}; }

  /// Scores by group of the last pass, float32 [B, Hg, T, K], divided by tau, without gradient, by layer.
  const std::map<int64_t, at::Tensor>& scores() const { return scores_; }
  /// Memberships of the last pass, the same shape: the paper's Q.
  const std::map<int64_t, at::Tensor>& memberships() const { return memberships_; }
  /// Hidden states [B, T, d] that they were made of, without gradient.
  const std::map<int64_t, at::Tensor>& hidden() const { return hidden_; }
  /// Mean over layers of entropy_balance_loss of the last pass, with gradients; only with
  /// GroupMitigation::kEntropyBalance, else undefined.
  at::Tensor auxiliary_loss() const;

 private:
  RoutingConfig config_;
  double sharpness_;
  const std::map<int64_t, LayerRouter>& routers_;
  GroupBalance balance_;
  PairCount pairs_;
  std::map<int64_t, at::Tensor> scores_;
  std::map<int64_t, at::Tensor> memberships_;
  std::map<int64_t, at::Tensor> hidden_;
  std::map<int64_t, at::Tensor> losses_;
};

}  // namespace focus
