#pragma once

#include <string>

#include "attention/methods/list_attention.h"

namespace focus {

/// The local window and the sinks alone: the baseline that shows what lists add.
class WindowAttention : public ListAttention {
 public:
  explicit WindowAttention(const RoutingConfig& config) : ListAttention(config) {}
  std::string name() const override { return "window"; }

 protected:
  Routes route(const AttentionInput& input, const at::Tensor& position_in_document) override;
  int64_t lists() const override { return 0; }
};

}  // namespace focus
