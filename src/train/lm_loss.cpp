#include "train/lm_loss.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace focus {

LmLoss lm_loss(const CausalLM& model, const at::Tensor& hidden, const at::Tensor& targets,
               std::optional<int64_t> count) {
  constexpr int64_t kRows = 256;
  const at::AutoGradMode with_grad(true);
  const int64_t n = hidden.size(0);
  require(targets.dim() == 1 && targets.size(0) == n, "lm_loss: {} states for {} targets", n, targets.numel());
  const at::Tensor counted = targets.ge(0);
  const int64_t divisor = count ? *count : counted.sum().item<int64_t>();
  require(divisor > 0, "lm_loss: no token is predicted in a window of {}", n);
  LmLoss result{.nats = 0, .hidden_gradient = at::empty(hidden.sizes(), hidden.options().requires_grad(false))};
  for (int64_t begin = 0; begin < n; begin += kRows) {
    const int64_t rows = std::min(kRows, n - begin);
    const at::Tensor states = hidden.narrow(0, begin, rows).detach().set_requires_grad(true);
    const at::Tensor logits = model.logits(states).to(at::kFloat);  // [rows, V]
    const at::Tensor picked = logits.gather(1, targets.narrow(0, begin, rows).clamp_min(0).unsqueeze(1)).squeeze(1);
    const at::Tensor nll = (at::logsumexp(logits, 1) - picked) * counted.narrow(0, begin, rows);
    const at::Tensor sum = nll.sum() / static_cast<double>(divisor);
    result.nats += sum.item<double>();
    torch::autograd::backward({sum});
    result.hidden_gradient.narrow(0, begin, rows).copy_(states.grad());
  }
  return result;
}

at::Tensor next_tokens(const TrainWindows::Window& window) {
  const int64_t length = std::ssize(window.ids);
  std::vector<int64_t> targets(window.ids.size(), -1);
  for (int64_t t = 0; t + 1 < length; ++t) {
    const auto next = static_cast<size_t>(t + 1);
    if (window.document_start[next] <= t) targets[next - 1] = window.ids[next];
  }
  return at::tensor(targets, at::kLong);
}

}  // namespace focus
