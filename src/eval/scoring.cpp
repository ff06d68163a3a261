#include "eval/scoring.h"

#include <algorithm>

#include "base/error.h"

namespace focus {

at::Tensor token_nll(const CausalLM& model, const at::Tensor& hidden, const at::Tensor& targets) {
  constexpr int64_t kRows = 256;
  const int64_t n = hidden.size(0);
  require(targets.dim() == 1 && targets.size(0) == n, "token_nll: {} states for {} targets", n, targets.numel());
  at::Tensor nll = at::empty({n}, hidden.options().dtype(at::kFloat));
  for (int64_t begin = 0; begin < n; begin += kRows) {
    const int64_t rows = std::min(kRows, n - begin);
    const at::Tensor logits = model.logits(hidden.narrow(0, begin, rows)).to(at::kFloat);  // [rows, V]
    const at::Tensor picked = logits.gather(1, targets.narrow(0, begin, rows).unsqueeze(1)).squeeze(1);
    nll.narrow(0, begin, rows).copy_(at::logsumexp(logits, 1) - picked);
  }
  return nll;
}

}  // namespace focus
