#pragma once

#include <ATen/ATen.h>

#include "models/model.h"

namespace focus {

struct LmLoss {
  double nats = 0;             ///< Mean cross entropy of the counted targets.
  at::Tensor hidden_gradient;  ///< Its derivative [N, d] by the final states, in their dtype.
};

/// Cross entropy of the next tokens and its gradient in one pass: hidden [N, d] (final normalised states), targets
/// int64 [N], -1 for rows that do not count. The vocabulary-wide logits and their gradient exist for a few hundred rows
/// at a time only, so no [N, V] tensor is kept; log-softmax is in float32. Throws Error when no row counts.
LmLoss lm_loss(const CausalLM& model, const at::Tensor& hidden, const at::Tensor& targets);

}  // namespace focus
