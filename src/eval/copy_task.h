#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attention/method.h"
#include "models/model.h"

namespace focus {

/// The copying test: a passage, other text, the same passage again. Perplexity on books hides lost retrieval; the loss
/// on the repeat shows it, since full attention finds the first occurrence.
struct CopyTaskOptions {
  int64_t items = 16;
  int64_t passage = 256;  ///< Tokens repeated.
  int64_t filler = 700;   ///< Tokens between the two occurrences.
};

struct CopyTaskResult {
  double nll = 0;         ///< Mean over the repeated tokens but the first of each repeat, nats.
  double nll_stderr = 0;  ///< Over items; NaN with fewer than two.
  int64_t items = 0;
  PairCount pairs;
  std::vector<double> item_nll;
};

/// Items start evenly spread over `ids`. Throws Error if the text is shorter than one item, with both numbers.
CopyTaskResult evaluate_copy(const CausalLM& model, AttentionMethod& method, const std::vector<int32_t>& ids,
                             const CopyTaskOptions& options,
                             const std::function<bool(int64_t, int64_t)>& progress = {});

}  // namespace focus
