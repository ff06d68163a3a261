#include "inspect/attention_sample.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "attention/op.h"

namespace focus {
namespace {

struct Example {
  AttentionInput input;
  WindowLists lists;
};

Example random_example(int64_t tokens, int64_t sets, int64_t layer_window, double softcap) {
  at::manual_seed(tokens + sets);
  Example example;
  example.input.q = at::randn({1, 6, tokens, 8});
  example.input.k = at::randn({1, 2, tokens, 8});
  example.input.scale = 0.4;
  example.input.softcap = softcap;
  example.input.layer_window = layer_window;
  WindowLists& lists = example.lists;
  lists.window = 5;
  lists.sinks = 2;
  lists.key_group = at::randint(1, 7, {sets, tokens}, at::kInt);
  lists.key_group.narrow(1, 0, std::min<int64_t>(2, tokens)).zero_();
  lists.shuffled = at::randint(1, 7, {sets, tokens}, at::kInt);
  // Two different lists a query, and the sinks' list in front.
  const at::Tensor first = at::randint(1, 4, {sets, tokens, 1}, at::kInt);
  lists.probes = at::cat({at::zeros_like(first), first, first + 3}, 2).contiguous();
  return example;
}

AttentionParams params_of(const Example& example, int64_t tokens) {
  AttentionParams params;
  params.key_group = example.lists.key_group.narrow(1, 0, tokens).unsqueeze(0);
  params.probes = example.lists.probes.narrow(1, 0, tokens).unsqueeze(0);
  params.window = example.lists.window;
  params.layer_window = example.input.layer_window;
  return params;
}

// Dense probabilities of all rows, [Hq, T, T].
at::Tensor dense_probabilities(const AttentionInput& input) {
  const int64_t tokens = input.q.size(2);
  at::Tensor scores = input.scale * at::matmul(input.q[0], input.k[0].repeat_interleave(3, 0).transpose(1, 2));
  if (input.softcap > 0) scores = input.softcap * at::tanh(scores / input.softcap);
  const at::Tensor causal = at::ones({tokens, tokens}, at::kBool).tril();
  at::Tensor seen = causal;
  if (input.layer_window > 0) seen = seen & at::ones({tokens, tokens}, at::kBool).triu(1 - input.layer_window);
  return at::softmax(scores.masked_fill(seen.logical_not(), -INFINITY), -1);
}

class AttentionSample : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t, double>> {};

TEST_P(AttentionSample, MassIsThatOfTheDenseMask) {
  const auto [tokens, sets, layer_window, softcap] = GetParam();
  const Example example = random_example(tokens, sets, layer_window, softcap);
  std::vector<int64_t> rows;
  for (int64_t t = 0; t < tokens; t += 3) rows.push_back(t);
  const at::Tensor p = attention_rows(example.input, at::tensor(rows, at::kLong));
  const at::Tensor dense = dense_probabilities(example.input).index_select(1, at::tensor(rows, at::kLong));
  EXPECT_LT((p.reshape_as(dense) - dense).abs().max().item<double>(), 1e-6);

  std::vector<FarPair> far;
  const MassSums sums = measure_mass(example.lists, rows, p, layer_window, far);
  const at::Tensor allowed = allowed_mask(1, tokens, tokens, params_of(example, tokens))[0]
                                 .index_select(1, at::tensor(rows, at::kLong))
                                 .repeat_interleave(6 / sets, 0);  // [Hq, R, T]
  EXPECT_NEAR(sums.window + sums.sinks + sums.lists, (dense * allowed).sum().item<double>(), 1e-3);
  EXPECT_NEAR(sums.rows, 6.0 * static_cast<double>(rows.size()), 0);
  EXPECT_NEAR(std::reduce(sums.mass.begin(), sums.mass.end()), sums.rows, 1e-3);
  EXPECT_NEAR(std::reduce(sums.mass_kept.begin(), sums.mass_kept.end()), sums.window + sums.sinks + sums.lists, 1e-3);
  const at::Tensor key = at::arange(tokens, at::kLong).unsqueeze(0);
  const at::Tensor distance = at::tensor(rows, at::kLong).unsqueeze(1) - key;  // [R, T]
  const at::Tensor beyond = distance.gt(example.lists.window);
  EXPECT_NEAR(sums.window, (dense * beyond.logical_not()).sum().item<double>(), 1e-3);
  EXPECT_NEAR(sums.sinks, (dense * (beyond & key.lt(2))).sum().item<double>(), 1e-3);
  EXPECT_EQ(std::reduce(sums.pairs_kept.begin(), sums.pairs_kept.end()) * 6 / sets, allowed.sum().item<int64_t>());
  // The strongest far pair of every row and head that has one.
  const at::Tensor listed = dense * allowed * (beyond & key.ge(2));
  const auto [best, at] = listed.max(-1);
  EXPECT_EQ(std::ssize(far), best.gt(0).sum().item<int64_t>());
  for (const FarPair& pair : far) {
    const int64_t row = pair.query / 3;
    EXPECT_NEAR(pair.mass, best[pair.head][row].item<double>(), 1e-6);
    EXPECT_EQ(pair.key, at[pair.head][row].item<int64_t>());
    EXPECT_EQ(pair.set, pair.head / (6 / sets));
    EXPECT_EQ(pair.list, example.lists.key_group[pair.set][pair.key].item<int32_t>());
  }
}

TEST_P(AttentionSample, PairsByLengthAreThoseOfThePrefix) {
  const auto [tokens, sets, layer_window, softcap] = GetParam();
  const Example example = random_example(tokens, sets, layer_window, softcap);
  std::vector<int64_t> lengths(static_cast<size_t>(tokens));
  std::iota(lengths.begin(), lengths.end(), 1);
  lengths.push_back(tokens);
  lengths.push_back(tokens + 1);
  const std::vector<int64_t> kept = pairs_by_length(example.lists, layer_window, lengths);
  for (size_t x = 0; x < lengths.size(); ++x) {
    const int64_t length = lengths[x];
    EXPECT_EQ(kept[x], length > tokens ? 0 : count_pairs(1, length, length, params_of(example, length)).kept) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionSample,
                         ::testing::Values(std::tuple(1, 2, 0, 0.0), std::tuple(4, 1, 0, 0.0),
                                           std::tuple(61, 2, 0, 0.0), std::tuple(61, 1, 0, 2.0),
                                           std::tuple(61, 2, 20, 0.0), std::tuple(61, 2, 6, 0.0),
                                           std::tuple(61, 2, 3, 0.0)));

TEST(DistanceBin, BeginsAtPowersOfTwo) {
  EXPECT_EQ(distance_bin(0), 0);
  EXPECT_EQ(distance_bin(1), 1);
  EXPECT_EQ(distance_bin(2), 2);
  EXPECT_EQ(distance_bin(3), 2);
  EXPECT_EQ(distance_bin(4), 3);
  EXPECT_EQ(distance_bin(int64_t{1} << 40), kDistanceBins - 1);
}

}  // namespace
}  // namespace focus
