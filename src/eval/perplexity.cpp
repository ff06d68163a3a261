#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "eval/scoring.h"

namespace focus {

PerplexityResult evaluate_perplexity(const CausalLM& model, AttentionMethod& method,
                                     const std::vector<Document>& documents, const std::vector<EvalWindow>& windows,
                                     const std::function<bool(int64_t, int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  PerplexityResult result;
  double sum = 0;
  for (const EvalWindow& window : windows) {
    const auto document = documents[window.document].begin();
    const at::Tensor input =
        at::tensor(std::vector<int64_t>(document + window.begin, document + window.end), at::kLong).unsqueeze(0);
    const at::Tensor hidden = model.forward(input, method).squeeze(0);
    const int64_t first = input.size(1) - window.scored;  // First scored position inside the window, >= 1.
    const at::Tensor nll =
        token_nll(model, hidden.narrow(0, first - 1, window.scored), input[0].narrow(0, first, window.scored));
    const double window_sum = nll.to(at::kDouble).sum().item<double>();
    require(std::isfinite(window_sum),
            "the loss of tokens {} to {} is not finite: the model or adapter gives NaN or Inf", window.begin,
            window.end, window.document);
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
