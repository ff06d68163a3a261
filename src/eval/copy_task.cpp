#include "eval/copy_task.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/error.h"
#include "eval/scoring.h"
#include "eval/statistics.h"

namespace focus {

CopyTaskResult evaluate_copy(const CausalLM& model, AttentionMethod& method, const std::vector<int32_t>& ids,
                             const CopyTaskOptions& options, const std::function<bool(int64_t, int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  const int64_t source = options.passage + options.filler;
  const int64_t tokens = std::ssize(ids);
  require(tokens >= source, "the copying task needs a text of {} tokens ({} repeated after {} others), this one has {}",
          source, options.passage, options.filler, tokens);
  const at::Tensor all = at::tensor(ids, at::kLong);
  CopyTaskResult result;
  method.reset_pairs();
  for (int64_t item = 0; item < options.items; ++item) {
    const int64_t begin = options.items > 1 ? (tokens - source) * item / (options.items - 1) : 0;
    const at::Tensor text = all.narrow(0, begin, source);
    const at::Tensor input = at::cat({text, text.narrow(0, 0, options.passage)}).unsqueeze(0);
    const at::Tensor hidden = model.forward(input, method).squeeze(0);
    const at::Tensor nll = token_nll(model, hidden.narrow(0, source, options.passage - 1),
                                     input[0].narrow(0, source + 1, options.passage - 1));
    result.item_nll.push_back(nll.to(at::kDouble).mean().item<double>());
    require(std::isfinite(result.item_nll.back()), "the loss of copying item {} is not finite", item);
    if (progress && !progress(item + 1, options.items)) break;
  }
  result.items = std::ssize(result.item_nll);
  result.pairs = method.pairs();
  const MeanError mean = mean_error(result.item_nll);
  result.nll = mean.mean;
  result.nll_stderr = mean.error;
  return result;
}

}  // namespace focus
