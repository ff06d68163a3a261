#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "attention/op.h"

namespace focus {

/// q, k, v of one attention problem with as many queries as keys, and which pairs count.
struct BenchProblem {
  at::Tensor q;  ///< [B, Hq, T, D]
  at::Tensor k;  ///< [B, Hkv, T, D]
  at::Tensor v;  ///< [B, Hkv, T, D]
  AttentionParams params;

  int64_t length() const { return q.size(2); }
  /// The problem of the queries first .. last - 1 alone: their rows, and the keys before `last`.
  BenchProblem rows(int64_t first, int64_t last) const;
};

/// Half the distance from 1 to the next number above it: what one rounding may change, relatively.
double epsilon(at::ScalarType dtype);

using AttentionRun = std::function<at::Tensor(const BenchProblem&)>;

/// The correctness gate: runs `run` on the whole problem, in the form that is to be timed, and compares some of its
/// rows (and with `backward` the gradients of a loss over just these rows) with the naive reference in float64. An
/// error may be twice that of the reference in the same precision plus a few roundings. Returns the largest absolute
/// error of the output; throws Error, naming the method and the worst figure, when it is wrong.
double check_attention_run(const std::string& name, const BenchProblem& problem, const AttentionRun& run,
                           bool backward);

}  // namespace focus
