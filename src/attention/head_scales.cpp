#include "attention/head_scales.h"

#include <ATen/core/grad_mode.h>

#include "base/error.h"

namespace focus {

namespace {

at::Tensor by_head(const at::Tensor& values, const at::Tensor& x) {
  require(values.dim() == 1 && values.size(0) == x.size(1), "head scales for {} query heads, the layer has {}",
          values.numel(), x.size(1));
  return values.to(x.device()).view({1, -1, 1, 1});
}

}  // namespace

HeadScale HeadScale::ones(int64_t heads) {
  return {.score_factor = at::ones({heads}, at::kFloat), .output_gain = at::ones({heads}, at::kFloat)};
}

const HeadScale* find_scale(const std::shared_ptr<const HeadScales>& scales, int64_t layer) {
  if (scales == nullptr) return nullptr;
  const auto found = scales->find(layer);
  return found == scales->end() ? nullptr : &found->second;
}

at::Tensor scale_queries(const at::Tensor& q, const HeadScale& scale) {
  return (q * by_head(scale.score_factor, q)).to(q.scalar_type());
}

at::Tensor scale_outputs(const at::Tensor& out, const HeadScale& scale) {
  const at::Tensor gain = by_head(scale.output_gain, out);
  if (at::GradMode::is_enabled() && (out.requires_grad() || gain.requires_grad())) {
    return (out * gain).to(out.scalar_type());
  }
  return out.mul_(gain);
}

}  // namespace focus
