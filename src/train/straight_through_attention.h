#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "attention/methods/focus_attention.h"

namespace focus {

/// Focus as `eval` runs it, pair by pair, whose codebooks can be trained: where gradients are recorded, the hard mask
/// passes them to soft choices of lists (straight_through.h), p_i = soft_probes of the query's list scores and m_j =
/// softmax(sharpness * the key's list scores). Features of the index are constants: the choices of a layer take its
/// hidden states as they come.
class StraightThroughAttention : public FocusAttention {
 public:
  /// `codebooks` [Hg, E, d_g + 1] by layer: what gradients go to, equal to those of the router; empty: nowhere.
  /// `scales` may hold leaves as well. Lists and probes, not the paper's symmetric form.
  StraightThroughAttention(std::shared_ptr<const Router> router, std::shared_ptr<const HeadScales> scales,
                           std::map<int64_t, at::Tensor> codebooks, double sharpness);

  /// The same router after an update of codebooks or potentials.
  void update(std::shared_ptr<const Router> router) { set_router(std::move(router)); }
  /// Share of the routed tokens in each entry of the codebook, float32 [Hg, E], since the last reset_dominance().
  at::Tensor entry_shares(int64_t layer) const;
  /// From now on key features of all passes are kept, by layer [Hg, tokens, d_g + 1]; ends with taking them.
  void collect_features() { collecting_ = true; }
  std::map<int64_t, at::Tensor> take_features();

 protected:
  Routes route(const AttentionInput& input, const at::Tensor& position_in_document) override;
  at::Tensor attend_pairs(const AttentionInput& input, const at::Tensor& k, const at::Tensor& v,
                          const AttentionParams& params) override;

 private:
  std::map<int64_t, at::Tensor> codebooks_;
  double sharpness_;
  bool collecting_ = false;
  std::map<int64_t, std::vector<at::Tensor>> features_;
};

}  // namespace focus
