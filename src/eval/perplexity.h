#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attention/method.h"
#include "models/model.h"

namespace focus {

/// One window of a strided pass over a text: the tokens [begin, begin + length) are seen, the last `scored` predictions
/// count.
struct EvalWindow {
  int64_t document = 0;
  int64_t begin = 0;
  int64_t length = 0;
  int64_t scored = 0;
};

/// Windows of Hugging Face's strided perplexity loop over `tokens` ids: window starts advance by `stride`; a token is
/// predicted by the earliest window that holds it and one before it. With stride == context the windows are disjoint
/// and the first token of each is not scored. At most `max_windows` windows (0: all). Throws UsageError if context < 2
/// or stride is not in [1, context]; Error if there are fewer than 2 tokens.
std::vector<EvalWindow> eval_windows(int64_t tokens, int64_t context, int64_t stride, int64_t max_windows);

/// The windows of several documents, one after the other; none crosses from one to the next. Documents of fewer than 2
/// tokens give none. Throws Error if no document has 2 tokens.
std::vector<EvalWindow> eval_windows(const std::vector<std::vector<int32_t>>& documents, int64_t context,
                                     int64_t stride, int64_t max_windows);

struct PerplexityResult {
  double nll = 0;  ///< Mean over scored tokens, nats.
  double perplexity = 0;
  double nll_stderr = 0;  ///< Standard error of nll, windows taken as independent.
  int64_t tokens_scored = 0;
  int64_t windows = 0;
  std::vector<double> window_nll;  ///< Mean of each window, for paired comparisons.
};

/// Perplexity of the documents' windows under `method`. Calls `progress(done, total)` after each window and stops
/// early, with what was scored so far, when it returns false. Throws Error on a loss that is not finite, naming the
/// tokens.
PerplexityResult evaluate_perplexity(const CausalLM& model, AttentionMethod& method,
                                     const std::vector<std::vector<int32_t>>& documents,
                                     const std::vector<EvalWindow>& windows,
                                     const std::function<bool(int64_t, int64_t)>& progress = {});

}  // namespace focus
