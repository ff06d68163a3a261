#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

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
  const ::testing::AssertionResult result = matches_reference(random_case(spec));
  if (!result) RC_FAIL(spec.describe() + ": " + result.message());
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
