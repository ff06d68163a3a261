#include <gtest/gtest.h>

#include "attention/op.h"
#include "attention/testing.h"

namespace focus {
namespace {

at::Tensor ints(std::initializer_list<int32_t> values) {
  return at::tensor(std::vector<int32_t>(values), at::kInt);
}

TEST(AllowedMask, WindowKeepsSelfAndWBefore) {
  AttentionParams params;
  params.key_group = at::full({1, 1, 6}, -1, at::kInt);
  params.probes = at::zeros({1, 1, 6, 0}, at::kInt);
  params.window = 2;
  EXPECT_TRUE(at::equal(allowed_mask(1, 6, 6, params).sum(-1).flatten().to(at::kInt), ints({1, 2, 3, 3, 3, 3})));
  params.window = 5;
  params.layer_window = 2;
  EXPECT_TRUE(at::equal(allowed_mask(1, 6, 6, params).sum(-1).flatten().to(at::kInt), ints({1, 2, 2, 2, 2, 2})));
}

TEST(AllowedMask, QueriesAreTheLastPositions) {
  const at::Tensor mask = allowed_mask(1, 3, 10, {});
  EXPECT_TRUE(at::equal(mask.sum(-1).flatten().to(at::kInt), ints({8, 9, 10})));
}

TEST(AllowedMask, ListsAndDocuments) {
  AttentionParams params;
  params.key_group = ints({0, 1, -1, 0, 1, 0}).view({1, 1, 6});
  params.probes = ints({0, -1, 0, -1, 0, -1, 1, -1, 0, 1, -1, -1}).view({1, 1, 6, 2});
  const at::Tensor expected = at::tensor(std::vector<int32_t>{1, 0, 0, 0, 0, 0,  //
                                                              1, 1, 0, 0, 0, 0,  //
                                                              1, 0, 1, 0, 0, 0,  //
                                                              0, 1, 0, 1, 0, 0,  //
                                                              1, 1, 0, 1, 1, 0,  //
                                                              0, 0, 0, 0, 0, 1});
  EXPECT_TRUE(at::equal(allowed_mask(1, 6, 6, params).flatten().to(at::kInt), expected.to(at::kInt)));
  params.document_start = ints({0, 0, 0, 3, 3, 3}).view({1, 6});
  const at::Tensor packed = expected.to(at::kInt).view({6, 6}).clone();
  packed.slice(0, 3).slice(1, 0, 3).zero_();
  EXPECT_TRUE(at::equal(allowed_mask(1, 6, 6, params).view({6, 6}).to(at::kInt), packed));
}

TEST(Reference, OneQueryByHand) {
  // Scores ln 1 and ln 3: weights 1/4 and 3/4.
  const at::Tensor q = at::ones({1, 1, 1, 1});
  const at::Tensor k = at::tensor({0.0F, std::log(3.0F)}).view({1, 1, 2, 1});
  const at::Tensor v = at::tensor({4.0F, 8.0F}).view({1, 1, 2, 1});
  const auto [out, lse] = reference_attention(q, k, v, {});
  EXPECT_NEAR(out.item<double>(), 7.0, 1e-6);
  EXPECT_NEAR(lse.item<double>(), std::log(4.0), 1e-6);
}

TEST(Close, FailsOnOneSidedNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor good = at::tensor({1.0F, 2.0F});
  const at::Tensor bad = at::tensor({1.0F, nan});
  EXPECT_FALSE(testing::close(good, bad, 1e9));
  EXPECT_FALSE(testing::close(bad, good, 1e9));
  EXPECT_TRUE(testing::close(bad, bad, 0.0));
  EXPECT_FALSE(testing::close(at::tensor({infinity}), at::tensor({-infinity}), 1e9));
  EXPECT_FALSE(testing::close(at::tensor({infinity}), at::tensor({1.0F}), 1e9));
  EXPECT_FALSE(testing::close(good, at::tensor({1.0F}), 1e9));
  EXPECT_FALSE(testing::as_exact_as(bad, bad, good));
  EXPECT_FALSE(testing::as_exact_as(bad, good, good));
  const ::testing::AssertionResult result = testing::close(good, at::tensor({1.0F, 3.0F}), 0.5);
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("worst cell [1]: actual 2, expected 3"), std::string::npos);
}

}  // namespace
}  // namespace focus
