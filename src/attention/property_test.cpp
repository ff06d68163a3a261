#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>

#include "attention/op.h"
#include "attention/testing.h"

namespace focus {
namespace {

using focus::testing::Case;
using focus::testing::CaseSpec;
using focus::testing::random_case;

CaseSpec arbitrary_spec(int64_t longest) {
  const auto upto = [](const char* name, int64_t low, int64_t high) {
    return *rc::gen::inRange<int64_t>(low, high + 1).as(name);
  };
  CaseSpec spec;
  spec.batch = upto("batch", 1, 2);
  spec.kv_heads = upto("kv_heads", 1, 3);
  spec.heads = spec.kv_heads * upto("group", 1, 4);
  spec.tk = upto("tk", 1, longest);
  spec.tq = upto("tq", 1, spec.tk);
  spec.dim = upto("dim", 1, 40);
  spec.list_sets = upto("per head", 0, 1) == 0 ? 1 : spec.kv_heads;
  spec.lists = upto("lists", 0, 20);
  spec.probes = upto("probes", 0, spec.lists);
  spec.window = upto("window", 0, spec.tk + 1);
  spec.layer_window = upto("sliding", 0, 1) == 0 ? 0 : upto("layer_window", 1, spec.tk + 1);
  spec.softcap = upto("capped", 0, 1) == 0 ? 0.0 : 2.5;
  spec.document = upto("packed", 0, 1) == 0 ? 0 : upto("document", 1, spec.tk);
  spec.strided = upto("strided", 0, 1) == 1;
  spec.seed = static_cast<uint64_t>(upto("seed", 0, 1 << 20));
  return spec;
}

RC_GTEST_PROP(AttentionProperty, EqualsTheReferenceForwardAndBackward, ()) {
  const CaseSpec spec = arbitrary_spec(200);
  const ::testing::AssertionResult result =
      matches_reference(random_case(spec), {.math = {nullptr}, .few_cells = true});
  if (!result) RC_FAIL(spec.describe() + ": " + result.message());
}

// A hundred small cases a draw, on every instruction set in turn: with RapidCheck's hundred draws ten thousand.
RC_GTEST_PROP(AttentionProperty, ManySmallCasesEqualTheReference, ()) {
  std::mt19937_64 generator(*rc::gen::inRange<uint64_t>(0, uint64_t{1} << 40).as("seed"));
  const auto upto = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  const std::vector<const kernels::cpu::StripMath*> all = focus::testing::all_strip_math();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // far faster for such sizes
  for (size_t x = 0; x < 100; ++x) {
    CaseSpec spec;
    spec.kv_heads = upto(1, 2);
    spec.heads = spec.kv_heads * upto(1, 3);
    spec.tk = upto(1, 60);
    spec.tq = upto(0, 1) == 0 ? spec.tk : upto(1, spec.tk);
    spec.dim = upto(1, 20);
    spec.list_sets = upto(0, 1) == 0 ? 1 : spec.kv_heads;
    spec.lists = upto(0, 6);
    spec.probes = upto(0, spec.lists);
    spec.window = upto(0, spec.tk + 1);
    spec.layer_window = upto(0, 3) == 0 ? upto(1, spec.tk + 1) : 0;
    spec.softcap = upto(0, 3) == 0 ? 2.5 : 0.0;
    spec.document = upto(0, 3) == 0 ? upto(1, spec.tk) : 0;
    spec.strided = upto(0, 3) == 0;
    spec.dtype = upto(0, 3) == 0 ? at::kBFloat16 : at::kFloat;
    spec.seed = generator();
    const ::testing::AssertionResult result =
        matches_reference(random_case(spec), {.math = {all[x % all.size()]}, .few_cells = true});
    if (!result) RC_FAIL(spec.describe() + ": " + result.message());
  }
  at::set_num_threads(threads);
}

RC_GTEST_PROP(AttentionProperty, CountedPairsAreThoseOfTheMask, ()) {
  const CaseSpec spec = arbitrary_spec(200);
  const Case example = random_case(spec);
  const PairCount count = count_pairs(spec.batch, spec.tq, spec.tk, example.params);
  RC_ASSERT(count.kept == allowed_mask(spec.batch, spec.tq, spec.tk, example.params).sum().item<int64_t>());
  AttentionParams causal;
  causal.document_start = example.params.document_start;
  const int64_t sets = example.params.key_group ? spec.list_sets : 1;
  RC_ASSERT(count.causal == sets * allowed_mask(spec.batch, spec.tq, spec.tk, causal).sum().item<int64_t>());
}

}  // namespace
}  // namespace focus
