#include "models/onednn_linear.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>

#include <optional>
#include <string_view>

namespace focus {

namespace {

// For fewer rows the weight's way into oneDNN's layout costs more than is gained.
constexpr int64_t kFewestRows = 64;

using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                   std::string_view, c10::List<std::optional<at::Scalar>>,
                                   std::optional<std::string_view>);

/// The operator behind torch.compile's linear layers; absent in a LibTorch built without oneDNN.
const std::optional<c10::OperatorHandle>& linear_operator() {
  static const std::optional<c10::OperatorHandle> found =
      c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  return found;
}

bool is_intel() {
#ifdef __x86_64__
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

}  // namespace

bool prefers_onednn(const at::Tensor& x, const at::Tensor& weight) {
  static const bool usable = !is_intel() && at::hasMKL() && at::hasMKLDNN() && linear_operator().has_value();
  return usable && x.is_cpu() && weight.is_cpu() && x.scalar_type() == at::kFloat &&
         weight.scalar_type() == at::kFloat && x.dim() >= 2 && x.numel() >= kFewestRows * x.size(-1) &&
         x.is_contiguous() && weight.is_contiguous() && at::globalContext().userEnabledMkldnn() &&
         !at::autocast::is_autocast_enabled(at::kCPU) &&
         !(c10::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad()));
}

at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto call = linear_operator()->typed<LinearPointwise>();
  return call.call(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt, "none",
                   c10::List<std::optional<at::Scalar>>(), std::optional<std::string_view>(""));
}

}  // namespace focus
