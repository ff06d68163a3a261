#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attention/op.h"
#include "kernels/cpu/strip_math.h"

/// Helpers of the tests of attention kernels and methods.
namespace focus::testing {

/// Passes iff shapes agree and every cell of `actual` is within atol + rtol * |expected| of `expected`. NaN or infinity
/// on one side only fails; the same infinity on both sides agrees. The message names the worst cell and both values.
::testing::AssertionResult close(const at::Tensor& actual, const at::Tensor& expected, double atol, double rtol = 0.0);

/// Passes iff `actual` is as near to the float64 `exact` as a computation in its own precision may be: its largest
/// error is at most twice that of `same_precision`, plus a few roundings of the largest value in `exact`, plus atol.
/// NaN and infinity as in close().
::testing::AssertionResult as_exact_as(const at::Tensor& actual, const at::Tensor& same_precision,
                                       const at::Tensor& exact, double atol = 0.0);

/// Inputs of one call of the op.
struct Case {
  at::Tensor q, k, v;
  AttentionParams params;
};

/// Sizes and options from which random_case draws.
struct CaseSpec {
  int64_t batch = 1, heads = 1, kv_heads = 1, tq = 1, tk = 1, dim = 8;
  int64_t list_sets = 1;
  int64_t lists = 0;  ///< 0: dense, without key_group.
  int64_t probes = 0;
  int64_t window = 0;
  int64_t layer_window = 0;
  double softcap = 0.0;
  int64_t document = 0;  ///< Mean length of packed documents, 0 for one document.
  bool strided = false;  ///< q, k, v as transposed, sliced views instead of contiguous tensors.
  at::ScalarType dtype = at::kFloat;
  uint64_t seed = 0;

  std::string describe() const;
};

Case random_case(const CaseSpec& spec);

/// The case with q, k and v in another dtype.
Case as_dtype(const Case& example, at::ScalarType dtype);

/// out, lse and the gradients of q, k and v for the output gradient grad_out.
struct Results {
  at::Tensor out, lse, dq, dk, dv;
};
using AttentionFn = std::tuple<at::Tensor, at::Tensor> (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                           const AttentionParams&);
Results run(AttentionFn function, const Case& example, const at::Tensor& grad_out);

struct MatchOptions {
  /// The instruction sets to run the op on; null: the one in use.
  std::vector<const kernels::cpu::StripMath*> math = {nullptr};
  /// For cases of a handful of cells, where the reference may be right to the last bit by luck: allows the output, too,
  /// what rounded scores explain.
  bool few_cells = false;
};

/// All instruction sets that this machine can run, and the code of avx512 on what it has.
std::vector<const kernels::cpu::StripMath*> all_strip_math();

/// Runs the op and the reference in the case's dtype and the reference in float64, forward and backward, and compares
/// them by as_exact_as.
::testing::AssertionResult matches_reference(const Case& example, const MatchOptions& options = {});

}  // namespace focus::testing
