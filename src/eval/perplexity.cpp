#include "eval/perplexity.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "eval/scoring.h"
#include "eval/statistics.h"

namespace focus {

namespace {

/// Losses by position, window by window.
class Positions {
 public:
  /// nll float64 [n] of the tokens at positions `first` ... of a window.
  void add(const at::Tensor& nll, int64_t first) {
    const int64_t last = first + nll.size(0);
    int64_t begin = 0, end = kFirstEnd;
    for (size_t part = 0; begin < last; ++part, begin = end, end *= 2) {
      if (part == parts_.size()) parts_.push_back({begin, end, {}, {}});
      const int64_t low = std::max(begin, first), high = std::min(end, last);
      if (low >= high) continue;
      parts_[part].sums.push_back(nll.narrow(0, low - first, high - low).sum().item<double>());
      parts_[part].counts.push_back(static_cast<double>(high - low));
    }
  }

  std::vector<PositionLoss> losses() const {
    std::vector<PositionLoss> all;
    for (const Part& part : parts_) {
      if (part.counts.empty()) continue;
      const MeanError mean = ratio_error(part.sums, part.counts);
      const double tokens = std::accumulate(part.counts.begin(), part.counts.end(), 0.0);
      all.push_back({part.begin, part.end, mean.mean, mean.error, static_cast<int64_t>(tokens)});
    }
    return all;
  }

 private:
  static constexpr int64_t kFirstEnd = 128;
  struct Part {
    int64_t begin, end;
    std::vector<double> sums, counts;  // One a window.
  };
  std::vector<Part> parts_;
};

}  // namespace

PerplexityResult evaluate_perplexity(const CausalLM& model, AttentionMethod& method,
                                     const std::vector<Document>& documents, const std::vector<EvalWindow>& windows,
                                     const std::function<bool(int64_t, int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  PerplexityResult result;
  Positions positions;
  std::vector<double> sums, counts;  // One a window.
  for (const EvalWindow& window : windows) {
    const auto document = documents[window.document].begin();
    const at::Tensor input =
        at::tensor(std::vector<int64_t>(document + window.begin, document + window.end), at::kLong).unsqueeze(0);
    const at::Tensor hidden = model.forward(input, method).squeeze(0);
    const int64_t first = input.size(1) - window.scored;  // First scored position inside the window, >= 1.
    const at::Tensor nll =
        token_nll(model, hidden.narrow(0, first - 1, window.scored), input[0].narrow(0, first, window.scored))
            .to(at::kDouble);
    const double window_sum = nll.sum().item<double>();
    require(std::isfinite(window_sum),
            "the loss of tokens {} to {} is not finite: the model or adapter gives NaN or Inf", window.begin,
            window.end, window.document);
    positions.add(nll, first);
    sums.push_back(window_sum);
    counts.push_back(static_cast<double>(window.scored));
    result.tokens_scored += window.scored;
    result.window_nll.push_back(window_sum / static_cast<double>(window.scored));
    result.window_tokens.push_back(window.scored);
    if (progress && !progress(std::ssize(result.window_nll), std::ssize(windows))) break;
  }
  result.windows = std::ssize(result.window_nll);
  const MeanError mean = ratio_error(sums, counts);
  result.nll = mean.mean;
  result.nll_stderr = mean.error;
  result.perplexity = std::exp(result.nll);
  result.by_position = positions.losses();
  return result;
}

}  // namespace focus
