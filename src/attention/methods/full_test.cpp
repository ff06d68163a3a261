#include "attention/methods/full.h"

#include <gtest/gtest.h>

#include "attention/dense.h"
#include "base/error.h"

namespace focus {
namespace {

/// Largest difference; infinite if only one side is finite.
double difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_TRUE(a.isfinite().all().item<bool>());
  EXPECT_TRUE(b.isfinite().all().item<bool>());
  return (a - b).abs().max().item<double>();
}

AttentionInput make_input(int64_t batch, int64_t heads, int64_t kv_heads, int64_t tokens, int64_t size) {
  AttentionInput input;
  // Views as split_heads makes them: [B, T, H, D] transposed.
  input.q = at::randn({batch, tokens, heads, size}).transpose(1, 2);
  input.k = at::randn({batch, tokens, kv_heads, size}).transpose(1, 2);
  input.v = at::randn({batch, tokens, kv_heads, size}).transpose(1, 2);
  input.scale = 0.3;
  return input;
}

AttentionParams params_of(const AttentionInput& input) {
  AttentionParams params;
  params.document_start = input.document_start;
  params.layer_window = input.layer_window;
  params.scale = input.scale;
  params.softcap = input.softcap;
  return params;
}

/// Every kind of mask over odd lengths, in one pass and in chunks through a cache.
TEST(FullAttention, EqualsTheReference) {
  at::manual_seed(1);
  for (const int64_t tokens : {1, 2, 63, 131}) {
    for (const int64_t window : {0, 5, 200}) {
      for (const double softcap : {0.0, 2.0}) {
        for (const bool documents : {false, true}) {
          AttentionInput input = make_input(2, 6, 2, tokens, 8);
          input.layer_window = window;
          input.softcap = softcap;
          if (documents) {
            at::Tensor start = at::zeros({2, tokens}, at::kInt);
            start[0].slice(0, tokens / 2).fill_(tokens / 2);
            start[1].slice(0, 0, tokens / 3).fill_(tokens + 1);
            start[1].slice(0, tokens / 3).fill_(tokens / 3);
            input.document_start = start;
          }
          const at::Tensor expected = std::get<0>(reference_attention(input.q, input.k, input.v, params_of(input)));
          FullAttention method;
          EXPECT_LT(difference(method.attend(input), expected), 2e-5) << tokens << " " << window << " " << documents;
          const PairCount whole = method.pairs();
          const PairCount counted = count_pairs(2, tokens, tokens, params_of(input));
          EXPECT_EQ(whole.kept, counted.kept);
          EXPECT_EQ(whole.causal, counted.causal);

          method.reset_pairs();
          const std::unique_ptr<LayerCache> cache = method.make_cache(0, 2, tokens);
          std::vector<at::Tensor> parts;
          for (int64_t done = 0; done < tokens;) {
            const int64_t size = std::min<int64_t>(tokens - done, done % 2 == 0 ? 1 : 40);
            AttentionInput part = input;
            part.q = input.q.narrow(2, done, size);
            part.k = input.k.narrow(2, done, size);
            part.v = input.v.narrow(2, done, size);
            if (documents) part.document_start = input.document_start->narrow(1, 0, done + size);
            part.cache = cache.get();
            parts.push_back(method.attend(part));
            done += size;
          }
          EXPECT_LT(difference(at::cat(parts, 2), expected), 2e-5) << tokens << " " << window << " " << documents;
          EXPECT_EQ(method.pairs().kept, whole.kept);
          EXPECT_EQ(method.pairs().causal, whole.causal);
        }
      }
    }
  }
}

TEST(FullAttention, ItsGradientsEqualTheReference) {
  at::manual_seed(2);
  const AttentionInput input = make_input(1, 6, 2, 33, 8);
  const at::Tensor weight = at::randn({1, 6, 33, 8});
  const auto gradients = [&](bool reference) {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& part : {input.q, input.k, input.v}) leaves.push_back(part.detach().clone().requires_grad_());
    const at::Tensor out = reference
                               ? std::get<0>(reference_attention(leaves[0], leaves[1], leaves[2], params_of(input)))
                               : dense_attention(leaves[0], leaves[1], leaves[2], params_of(input));
    (out * weight).sum().backward();
    return std::vector<at::Tensor>{leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
  };
  const std::vector<at::Tensor> ours = gradients(false);
  const std::vector<at::Tensor> expected = gradients(true);
  for (size_t i = 0; i < 3; ++i) EXPECT_LT(difference(ours[i], expected[i]), 2e-5);
}

TEST(FullAttention, RefusesListsAndForeignCaches) {
  class OtherCache : public LayerCache {
    int64_t length() const override { return 0; }
    int64_t bytes() const override { return 0; }
    void truncate(int64_t) override {}
  } other;
  AttentionInput input = make_input(1, 2, 2, 3, 4);
  AttentionParams lists;
  lists.key_group = at::zeros({1, 1, 3}, at::kInt);
  EXPECT_THROW(dense_attention(input.q, input.k, input.v, lists), Error);
  input.cache = &other;
  EXPECT_THROW(FullAttention().attend(input), Error);
}

}  // namespace
}  // namespace focus
