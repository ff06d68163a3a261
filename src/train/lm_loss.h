#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

#include "data/token_windows.h"
#include "models/model.h"

namespace focus {

struct LmLoss {
  double nats = 0;             ///< Sum of the cross entropies of the counted targets / `count`.
  at::Tensor hidden_gradient;  ///< Its derivative [N, d] by the final states, in their dtype.
};

/// Cross entropy of the next tokens and its gradient in one pass: hidden [N, d] (final normalised states), targets
/// int64 [N], -1 for rows that do not count. `count` divides the sum, absent: the rows that count. Gradients of the
/// head's weights, where they take any, are added in place. The vocabulary-wide logits and their gradient exist for a
/// few hundred rows at a time only, so no [N, V] tensor is kept; log-softmax is in float32. Throws Error when no row
/// counts and no `count` is given.
LmLoss lm_loss(const CausalLM& model, const at::Tensor& hidden, const at::Tensor& targets,
               std::optional<int64_t> count = std::nullopt);

/// The token after each position, int64 [T], -1 where that begins another document or the window ends.
at::Tensor next_tokens(const TrainWindows::Window& window);

}  // namespace focus
