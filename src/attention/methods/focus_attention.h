#pragma once

#include <memory>
#include <string>

#include "attention/methods/list_attention.h"

namespace focus {

/// Learned-group attention: lists and probes by a trained Router, beside the window and the sinks. Layers that the
/// router does not know attend densely.
class FocusAttention : public ListAttention {
 public:
  explicit FocusAttention(std::shared_ptr<const Router> router);
  std::string name() const override { return "focus"; }
  bool is_causal() const override { return router_->is_causal(); }
  const Router& router() const { return *router_; }
  /// Of the symmetric form: by group, as a share of all memberships, so that 1 / K is even for any k.
  Dominance dominance() const override;

 protected:
  /// Throws Error when the router does not fit the model's width or KV heads.
  Routes route(const AttentionInput& input, const at::Tensor& position_in_document) override;
  bool is_sparse(int64_t layer) const override { return router_->has_layer(layer); }
  int64_t head_sets() const override { return router_->head_sets(); }
  int64_t lists() const override { return router_->lists(); }

 private:
  std::shared_ptr<const Router> router_;
};

}  // namespace focus
