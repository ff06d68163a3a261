#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attention/method.h"
#include "data/token_windows.h"
#include "models/model.h"

namespace focus {

/// Scored tokens at positions [begin, end) of their windows.
struct PositionLoss {
  int64_t begin = 0;
  int64_t end = 0;
  double nll = 0;         ///< Mean, nats.
  double nll_stderr = 0;  ///< Windows taken as independent; NaN with fewer than two.
  int64_t tokens = 0;
};

struct PerplexityResult {
  double nll = 0;  ///< Mean over scored tokens, nats.
  double perplexity = 0;
  double nll_stderr = 0;  ///< Standard error of nll, windows taken as independent; NaN with fewer than two.
  int64_t tokens_scored = 0;
  int64_t windows = 0;
  std::vector<double> window_nll;         ///< Mean of each window, for paired comparisons.
  std::vector<int64_t> window_tokens;     ///< Tokens scored in each window.
  std::vector<PositionLoss> by_position;  ///< Below 128, 256, 512 ...; parts without a scored token are left out.
};

/// Perplexity of the documents' windows under `method`. Calls `progress(done, total)` after each window and stops
/// early, with what was scored so far, when it returns false. Throws Error on a loss that is not finite, naming the
/// tokens.
PerplexityResult evaluate_perplexity(const CausalLM& model, AttentionMethod& method,
                                     const std::vector<Document>& documents, const std::vector<EvalWindow>& windows,
                                     const std::function<bool(int64_t, int64_t)>& progress = {});

}  // namespace focus
