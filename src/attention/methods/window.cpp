#include "attention/methods/window.h"

#include <ATen/ATen.h>

namespace focus {

Routes WindowAttention::route(const AttentionInput& /*input*/, const at::Tensor& position_in_document) {
  const at::Tensor sink = position_in_document.ge(0).logical_and(position_in_document.lt(config().sinks));
  Routes routes;
  routes.key_group = at::where(sink, 0, -1).to(at::kInt).unsqueeze(1);
  routes.probes = at::where(position_in_document.ge(0), 0, -1).to(at::kInt).unsqueeze(1).unsqueeze(-1);
  return routes;
}

}  // namespace focus
