#pragma once

#include <memory>
#include <string>
#include <utility>

#include "attention/head_scales.h"
#include "attention/methods/list_attention.h"

namespace focus {

/// Learned-group attention: lists and probes by a trained Router, beside the window and the sinks. Layers that the
/// router does not know attend densely. Heads of any layer may have trained scalars.
class FocusAttention : public ListAttention {
 public:
  explicit FocusAttention(std::shared_ptr<const Router> router, std::shared_ptr<const HeadScales> scales = nullptr);
  std::string name() const override { return "focus"; }
  bool is_causal() const override { return router_->is_causal(); }
  at::Tensor attend(const AttentionInput& input) override;
  const Router& router() const { return *router_; }
  /// Null where no head has any.
  const std::shared_ptr<const HeadScales>& scales() const { return scales_; }
  /// Of the symmetric form: by group, as a share of all memberships, so that 1 / K is even for any k.
  Dominance dominance() const override;

 protected:
  /// Throws Error when the router does not fit the model's width or KV heads.
  Routes route(const AttentionInput& input, const at::Tensor& position_in_document) override;
  bool is_sparse(int64_t layer) const override { return router_->has_layer(layer); }
  int64_t head_sets() const override { return router_->head_sets(); }
  int64_t lists() const override { return router_->lists(); }
  /// Goes on with other weights under the same settings.
  void set_router(std::shared_ptr<const Router> router) { router_ = std::move(router); }

 private:
  std::shared_ptr<const Router> router_;
  std::shared_ptr<const HeadScales> scales_;
};

}  // namespace focus
