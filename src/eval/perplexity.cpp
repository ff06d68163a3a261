#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "eval/scoring.h"

namespace focus {

std::vector<EvalWindow> eval_windows(int64_t tokens, int64_t context, int64_t stride, int64_t max_windows) {
  if (context < 2) fail_usage("--context {}: at least 2 tokens are needed to predict one", context);
  if (stride < 1 || stride > context) fail_usage("--stride {}: expected 1 to the context ({})", stride, context);
  require(tokens >= 2, "the text has {} token(s); at least 2 are needed to predict one", tokens);
  std::vector<EvalWindow> windows;
  int64_t predicted = 0;  // Tokens before this position have been predicted, or cannot be.
  for (int64_t begin = 0; begin < tokens; begin += stride) {
    const int64_t end = std::min(begin + context, tokens);
    // Position `begin` itself has no prediction inside this window.
    const int64_t scored = end - std::max(predicted, begin + 1);
    if (scored > 0) windows.push_back({.begin = begin, .length = end - begin, .scored = scored});
    predicted = end;
    if (end == tokens || (max_windows > 0 && std::ssize(windows) == max_windows)) break;
  }
  return windows;
}

std::vector<EvalWindow> eval_windows(const std::vector<std::vector<int32_t>>& documents, int64_t context,
                                     int64_t stride, int64_t max_windows) {
  std::vector<EvalWindow> all;
  for (int64_t document = 0; document < std::ssize(documents); ++document) {
    const int64_t tokens = std::ssize(documents[document]);
    if (tokens < 2) continue;
    const int64_t left = max_windows - std::ssize(all);
    if (max_windows > 0 && left == 0) break;
    for (EvalWindow window : eval_windows(tokens, context, stride, max_windows > 0 ? left : 0)) {
      window.document = document;
      all.push_back(window);
    }
  }
  require(!all.empty(), "no document has 2 tokens or more: nothing to predict");
  return all;
}

PerplexityResult evaluate_perplexity(const CausalLM& model, AttentionMethod& method,
                                     const std::vector<std::vector<int32_t>>& documents,
                                     const std::vector<EvalWindow>& windows,
                                     const std::function<bool(int64_t, int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  PerplexityResult result;
  double sum = 0;
  for (const EvalWindow& window : windows) {
    const auto first_id = documents[window.document].begin() + window.begin;
    const at::Tensor input =
        at::tensor(std::vector<int64_t>(first_id, first_id + window.length), at::kLong).unsqueeze(0);
    const at::Tensor hidden = model.forward(input, method).squeeze(0);
    const int64_t first = window.length - window.scored;  // First scored position inside the window, >= 1.
    const at::Tensor nll =
        token_nll(model, hidden.narrow(0, first - 1, window.scored), input[0].narrow(0, first, window.scored));
    const double window_sum = nll.to(at::kDouble).sum().item<double>();
    require(std::isfinite(window_sum),
            "the loss of tokens {} to {} is not finite: the model or adapter gives NaN or Inf", window.begin,
            window.begin + window.length, window.document);
    sum += window_sum;
    result.tokens_scored += window.scored;
    result.window_nll.push_back(window_sum / static_cast<double>(window.scored));
    if (progress && !progress(std::ssize(result.window_nll), std::ssize(windows))) break;
  }
  result.windows = std::ssize(result.window_nll);
  result.nll = sum / static_cast<double>(result.tokens_scored);
  result.perplexity = std::exp(result.nll);
  if (result.windows > 1) {
    const double n = static_cast<double>(result.windows);
    double mean = 0, squares = 0;
    for (const double x : result.window_nll) mean += x / n;
    for (const double x : result.window_nll) squares += (x - mean) * (x - mean);
    result.nll_stderr = std::sqrt(squares / (n * (n - 1)));
  }
  return result;
}

}  // namespace focus
