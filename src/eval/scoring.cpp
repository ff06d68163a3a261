#include "eval/scoring.h"

#include <algorithm>

#include "base/error.h"

namespace focus {

namespace {

/// Fills nll, and `likely` if it is defined.
void score(const CausalLM& model, const at::Tensor& hidden, const at::Tensor& targets, TokenScores& scores) {
  constexpr int64_t kRows = 256;
  const int64_t n = hidden.size(0);
  require(targets.dim() == 1 && targets.size(0) == n, "token_nll: {} states for {} targets", n, targets.numel());
  scores.nll = at::empty({n}, hidden.options().dtype(at::kFloat));
  for (int64_t begin = 0; begin < n; begin += kRows) {
    const int64_t rows = std::min(kRows, n - begin);
    const at::Tensor block = targets.narrow(0, begin, rows);
    const at::Tensor logits = model.logits(hidden.narrow(0, begin, rows)).to(at::kFloat);  // [rows, V]
    const at::Tensor picked = logits.gather(1, block.unsqueeze(1)).squeeze(1);
    scores.nll.narrow(0, begin, rows).copy_(at::logsumexp(logits, 1) - picked);
    if (scores.likely.defined()) scores.likely.narrow(0, begin, rows).copy_(logits.argmax(1) == block);
  }
}

}  // namespace

at::Tensor token_nll(const CausalLM& model, const at::Tensor& hidden, const at::Tensor& targets) {
  TokenScores scores;
  score(model, hidden, targets, scores);
  return scores.nll;
}

TokenScores score_tokens(const CausalLM& model, const at::Tensor& hidden, const at::Tensor& targets) {
  TokenScores scores;
  scores.likely = at::empty({hidden.size(0)}, hidden.options().dtype(at::kBool));
  score(model, hidden, targets, scores);
  return scores;
}

}  // namespace focus
