#pragma once

#include <ATen/ATen.h>

#include "models/model.h"

namespace focus {

/// Negative log-likelihood in nats of each target: hidden [N, d] (final normalised states), targets int64 [N] ->
/// float32 [N]. The vocabulary-wide logits exist for a few hundred rows at a time only; log-softmax is in float32.
at::Tensor token_nll(const CausalLM& model, const at::Tensor& hidden, const at::Tensor& targets);

struct TokenScores {
  at::Tensor nll;     ///< float32 [N], as token_nll.
  at::Tensor likely;  ///< bool [N]: the target is the most likely token.
};

/// As token_nll, and whether greedy decoding would have chosen each target.
TokenScores score_tokens(const CausalLM& model, const at::Tensor& hidden, const at::Tensor& targets);

}  // namespace focus
