#include "attention/op.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/testing.h"
#include "base/error.h"
#include "kernels/scratch.h"

namespace focus {
namespace {

using focus::testing::Case;
using focus::testing::CaseSpec;
using focus::testing::close;
using focus::testing::matches_reference;
using focus::testing::random_case;
using focus::testing::Results;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Every test of this program runs with poisoned scratch memory.
class Poison : public ::testing::Environment {
 public:
  void SetUp() override { kernels::set_poison(true); }
};
const auto* const kPoison = ::testing::AddGlobalTestEnvironment(new Poison);

at::Tensor ones_like_out(const Case& example) {
  return at::ones(example.q.sizes(), example.q.options());
}

// The dense case with the same q, k, v.
Case dense(Case example) {
  example.params.key_group.reset();
  example.params.probes.reset();
  return example;
}

void expect_same_results(const Results& actual, const Results& expected, double atol) {
  EXPECT_TRUE(close(actual.out, expected.out, atol));
  EXPECT_TRUE(close(actual.lse, expected.lse, atol));
  EXPECT_TRUE(close(actual.dq, expected.dq, atol));
  EXPECT_TRUE(close(actual.dk, expected.dk, atol));
  EXPECT_TRUE(close(actual.dv, expected.dv, atol));
}

void expect_identical(const Results& actual, const Results& expected) {
  expect_same_results(actual, expected, 0.0);
}

class Grid : public ::testing::TestWithParam<std::tuple<CaseSpec, at::ScalarType>> {};

TEST_P(Grid, MatchesReferenceOnEveryInstructionSet) {
  auto [spec, dtype] = GetParam();
  spec.dtype = dtype;
  const focus::testing::MatchOptions options{focus::testing::all_strip_math()};
  EXPECT_TRUE(matches_reference(random_case(spec), options)) << spec.describe();
  EXPECT_TRUE(matches_reference(dense(random_case(spec)), options)) << "dense, " << spec.describe();
}

const CaseSpec kUglySpecs[] = {
    {.tq = 1, .tk = 1, .lists = 1, .probes = 1},
    {.heads = 6, .kv_heads = 2, .tq = 1, .tk = 239, .dim = 64, .list_sets = 2, .lists = 5, .probes = 2, .window = 3},
    {.batch = 2, .heads = 3, .kv_heads = 3, .tq = 239, .tk = 239, .dim = 8, .list_sets = 3, .lists = 7, .probes = 3},
    {.heads = 2, .kv_heads = 1, .tq = 3, .tk = 799, .dim = 40, .lists = 64, .probes = 8, .window = 13},
    {.heads = 6,
     .kv_heads = 2,
     .tq = 799,
     .tk = 799,
     .dim = 24,
     .list_sets = 2,
     .lists = 100,
     .probes = 12,
     .window = 3,
     .strided = true},
    {.heads = 2,
     .kv_heads = 1,
     .tq = 1023,
     .tk = 1024,
     .dim = 32,
     .lists = 16,
     .probes = 2,
     .window = 127,
     .document = 150},
    {.batch = 2,
     .heads = 6,
     .kv_heads = 2,
     .tq = 257,
     .tk = 300,
     .dim = 33,
     .list_sets = 1,
     .lists = 4,
     .probes = 1,
     .window = 11,
     .layer_window = 97,
     .softcap = 3.0,
     .strided = true},
    {.heads = 7, .kv_heads = 7, .tq = 65, .tk = 129, .dim = 1, .list_sets = 7, .lists = 3, .probes = 0, .window = 1},
    {.heads = 130, .kv_heads = 1, .tq = 11, .tk = 41, .dim = 16, .lists = 4, .probes = 2, .window = 2},
    // Runs of keys longer than the kernel takes at once, in the window and in a list.
    {.tq = 307, .tk = 1409, .dim = 16, .lists = 2, .probes = 1, .window = 701},
    {.heads = 2, .kv_heads = 1, .tq = 331, .tk = 331, .dim = 256, .lists = 3, .probes = 1, .window = 64},
};

INSTANTIATE_TEST_SUITE_P(Ugly, Grid,
                         ::testing::Combine(::testing::ValuesIn(kUglySpecs),
                                            ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf)));

TEST(Attention, AllListsProbedIsDense) {
  CaseSpec spec{.heads = 4, .kv_heads = 2, .tq = 200, .tk = 211, .dim = 16, .lists = 6, .probes = 6, .window = 9};
  Case example = random_case(spec);
  example.params.key_group = example.params.key_group->clamp_min(0);
  example.params.probes = at::arange(6, at::kInt).expand({1, 1, 200, 6});
  const at::Tensor grad = ones_like_out(example);
  expect_same_results(run(attention, example, grad), run(attention, dense(example), grad), 2e-5);
}

TEST(Attention, OneListIsDense) {
  CaseSpec spec{.heads = 2, .kv_heads = 2, .tq = 150, .tk = 150, .dim = 16, .lists = 1, .probes = 1};
  Case example = random_case(spec);
  example.params.key_group = at::zeros({1, 1, 150}, at::kInt);
  example.params.probes = at::zeros({1, 1, 150, 1}, at::kInt);
  const at::Tensor grad = ones_like_out(example);
  expect_same_results(run(attention, example, grad), run(attention, dense(example), grad), 2e-5);
}

TEST(Attention, WindowOfTheWholeLengthIsDense) {
  CaseSpec spec{.heads = 2, .kv_heads = 1, .tq = 150, .tk = 150, .dim = 16, .lists = 5, .probes = 2};
  for (const int64_t window : {int64_t{149}, int64_t{1000}, std::numeric_limits<int64_t>::max()}) {
    spec.window = window;
    const Case example = random_case(spec);
    const at::Tensor grad = ones_like_out(example);
    expect_identical(run(attention, example, grad), run(attention, dense(example), grad));
  }
}

TEST(Attention, UnevenLists) {
  // Lists 0 and 9 empty, list 1 with a single key, list 2 ten times the mean.
  Case example = random_case({.heads = 4,
                              .kv_heads = 2,
                              .tq = 400,
                              .tk = 400,
                              .dim = 16,
                              .list_sets = 2,
                              .lists = 40,
                              .probes = 6,
                              .window = 4});
  at::Tensor groups = at::randint(10, 40, {1, 2, 400}, at::kInt);
  groups.slice(2, 100, 200).fill_(2);
  groups.select(2, 50).fill_(1);
  example.params.key_group = groups;
  example.params.probes->select(3, 0).fill_(-1);
  example.params.probes->select(3, 1).fill_(2);
  example.params.probes->slice(3, 2) =
      example.params.probes->slice(3, 2).masked_fill(example.params.probes->slice(3, 2) == 2, -1);
  EXPECT_TRUE(matches_reference(example));
  example.params.key_group = at::full({1, 2, 400}, -1, at::kInt);
  EXPECT_TRUE(matches_reference(example)) << "all lists empty";
}

TEST(Attention, ManyListsAndFarIds) {
  Case example = random_case({.tq = 300, .tk = 300, .dim = 16, .lists = 4096, .probes = 24, .window = 0});
  EXPECT_TRUE(matches_reference(example));
  example.params.key_group = example.params.key_group->clamp_max(7);
  EXPECT_TRUE(matches_reference(example)) << "probes of lists that no key is in";
}

TEST(Attention, ListProbedTwiceCountsOnce) {
  Case example = random_case({.tq = 90, .tk = 90, .dim = 16, .lists = 3, .probes = 2, .window = 1});
  example.params.probes->select(3, 1).copy_(example.params.probes->select(3, 0));
  EXPECT_TRUE(matches_reference(example));
}

TEST(Attention, LargeScores) {
  for (const double softcap : {0.0, 50.0}) {
    Case example = random_case({.heads = 2,
                                .kv_heads = 1,
                                .tq = 130,
                                .tk = 130,
                                .dim = 64,
                                .lists = 4,
                                .probes = 2,
                                .window = 7,
                                .softcap = softcap});
    const at::Tensor largest = at::matmul(example.q, example.k.transpose(-2, -1)).abs().max() * example.params.scale;
    example.q = example.q * (1e4 / largest);
    const Results results = run(attention, example, ones_like_out(example));
    EXPECT_TRUE(results.out.isfinite().all().item<bool>());
    EXPECT_TRUE(results.dq.isfinite().all().item<bool>());
    EXPECT_TRUE(results.dk.isfinite().all().item<bool>());
    EXPECT_TRUE(matches_reference(example));
  }
}

TEST(Attention, PaddingRowsAreZeroAndTouchNothing) {
  // Left padding of 5 in the first batch row; the second row is whole.
  Case example = random_case(
      {.batch = 2, .heads = 4, .kv_heads = 2, .tq = 40, .tk = 40, .dim = 16, .lists = 3, .probes = 1, .window = 2});
  at::Tensor start = at::zeros({2, 40}, at::kInt);
  start[0].fill_(5);
  example.params.document_start = start;
  const Results results = run(attention, example, at::randn(example.q.sizes()));
  EXPECT_TRUE(results.out[0].slice(1, 0, 5).eq(0).all().item<bool>());
  EXPECT_TRUE(results.lse[0].slice(1, 0, 5).eq(-std::numeric_limits<float>::infinity()).all().item<bool>());
  for (const at::Tensor& grad : {results.dq, results.dk, results.dv}) {
    EXPECT_TRUE(grad[0].slice(1, 0, 5).eq(0).all().item<bool>());
    EXPECT_TRUE(grad.isfinite().all().item<bool>());
  }
  EXPECT_TRUE(matches_reference(example));
}

TEST(Attention, PackedDocumentsEqualSeparateRuns) {
  const int64_t lengths[] = {1, 17, 64, 131};
  const Case whole = random_case({.heads = 4,
                                  .kv_heads = 2,
                                  .tq = 213,
                                  .tk = 213,
                                  .dim = 16,
                                  .list_sets = 2,
                                  .lists = 4,
                                  .probes = 2,
                                  .window = 6});
  Case packed = whole;
  at::Tensor start = at::empty({1, 213}, at::kInt);
  int64_t first = 0;
  for (const int64_t length : lengths) {
    start.slice(1, first, first + length).fill_(first);
    first += length;
  }
  packed.params.document_start = start;
  const at::Tensor grad = at::randn(whole.q.sizes());
  const Results together = run(attention, packed, grad);
  first = 0;
  for (const int64_t length : lengths) {
    const auto cut = [&](const at::Tensor& tensor) { return tensor.slice(2, first, first + length); };
    Case alone{cut(whole.q), cut(whole.k), cut(whole.v), whole.params};
    alone.params.key_group = cut(*whole.params.key_group);
    alone.params.probes = cut(*whole.params.probes);
    const Results apart = run(attention, alone, cut(grad));
    expect_same_results({cut(together.out), cut(together.lse), cut(together.dq), cut(together.dk), cut(together.dv)},
                        apart, 1e-5);
    first += length;
  }
}

TEST(Attention, ManyShortDocuments) {
  Case example = random_case({.tq = 80000, .tk = 80000, .dim = 8, .lists = 8, .probes = 2, .window = 2});
  const at::Tensor position = at::arange(80000, at::kInt).unsqueeze(0);
  example.params.document_start = (position - position.remainder(16)).to(at::kInt);
  const auto [out, lse] = attention(example.q, example.k, example.v, example.params);
  for (const int64_t first : {int64_t{0}, int64_t{40000}, int64_t{79984}}) {
    const auto cut = [&](const at::Tensor& tensor) { return tensor.slice(2, first, first + 16); };
    AttentionParams params = example.params;
    params.key_group = cut(*params.key_group);
    params.probes = cut(*params.probes);
    params.document_start.reset();
    const auto [alone, alone_lse] = reference_attention(cut(example.q), cut(example.k), cut(example.v), params);
    EXPECT_TRUE(close(cut(out), alone, 1e-5));
    EXPECT_TRUE(close(cut(lse), alone_lse, 1e-5));
  }
}

TEST(Attention, ChunksEqualOnePass) {
  const Case whole = random_case({.heads = 4,
                                  .kv_heads = 2,
                                  .tq = 150,
                                  .tk = 150,
                                  .dim = 16,
                                  .list_sets = 2,
                                  .lists = 4,
                                  .probes = 2,
                                  .window = 6,
                                  .document = 60});
  const auto [out, lse] = attention(whole.q, whole.k, whole.v, whole.params);
  for (const int64_t chunk : {1, 17, 149}) {
    for (int64_t first = 0; first < 150; first += chunk) {
      const int64_t last = std::min<int64_t>(first + chunk, 150);
      AttentionParams params = whole.params;
      params.key_group = whole.params.key_group->slice(2, 0, last);
      params.probes = whole.params.probes->slice(2, first, last);
      params.document_start = whole.params.document_start->slice(1, 0, last);
      const auto [part, part_lse] =
          attention(whole.q.slice(2, first, last), whole.k.slice(2, 0, last), whole.v.slice(2, 0, last), params);
      ASSERT_TRUE(close(part, out.slice(2, first, last), 1e-5)) << "chunk " << chunk << " at " << first;
      ASSERT_TRUE(close(part_lse, lse.slice(2, first, last), 1e-5));
    }
  }
}

TEST(Attention, LaterTokensChangeNothing) {
  Case example = random_case({.heads = 4,
                              .kv_heads = 2,
                              .tq = 300,
                              .tk = 300,
                              .dim = 16,
                              .list_sets = 2,
                              .lists = 4,
                              .probes = 2,
                              .window = 6});
  const auto [out, lse] = attention(example.q, example.k, example.v, example.params);
  for (const int64_t from : {1, 63, 64, 200, 299}) {
    Case changed = example;
    const auto replaced = [&](const at::Tensor& tensor, const at::Tensor& with) {
      at::Tensor copy = tensor.clone();
      copy.slice(2, from).copy_(with.slice(2, from));
      return copy;
    };
    changed.q = replaced(example.q, at::randn(example.q.sizes()) * 30);
    changed.k = replaced(example.k, at::randn(example.k.sizes()) * 30);
    changed.v = replaced(example.v, at::randn(example.v.sizes()) * 30);
    changed.params.key_group = replaced(*example.params.key_group, at::randint(-1, 9, {1, 2, 300}, at::kInt));
    changed.params.probes = replaced(*example.params.probes, at::randint(-1, 9, {1, 2, 300, 2}, at::kInt));
    const auto [later, later_lse] = attention(changed.q, changed.k, changed.v, changed.params);
    EXPECT_TRUE(close(later.slice(2, 0, from), out.slice(2, 0, from), 0.0)) << "changed from " << from;
    EXPECT_TRUE(close(later_lse.slice(2, 0, from), lse.slice(2, 0, from), 0.0)) << "changed from " << from;
  }
}

TEST(Attention, AllKeysInOneListOfMany) {
  Case example =
      random_case({.heads = 2, .kv_heads = 1, .tq = 700, .tk = 700, .dim = 16, .lists = 9, .probes = 3, .window = 5});
  example.params.key_group = at::full({1, 1, 700}, 4, at::kInt);
  EXPECT_TRUE(matches_reference(example));
}

// Enough queries for several blocks of a list's rows, which depend on the number of threads.
TEST(Attention, BitsOfManyBlocksDependOnNothing) {
  const Case example = random_case({.heads = 3,
                                    .kv_heads = 1,
                                    .tq = 6001,
                                    .tk = 6101,
                                    .dim = 16,
                                    .lists = 8,
                                    .probes = 2,
                                    .window = 40,
                                    .document = 3000});
  const at::Tensor grad = at::randn(example.q.sizes());
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Results one = run(attention, example, grad);
  for (const int count : {2, 5}) {
    at::set_num_threads(count);
    expect_identical(run(attention, example, grad), one);
  }
  at::set_num_threads(threads);
}

TEST(Attention, BitsDependNeitherOnThreadsNorOnBatchMates) {
  const Case example = random_case({.batch = 2,
                                    .heads = 6,
                                    .kv_heads = 2,
                                    .tq = 900,
                                    .tk = 900,
                                    .dim = 32,
                                    .list_sets = 2,
                                    .lists = 8,
                                    .probes = 2,
                                    .window = 20});
  const at::Tensor grad = at::randn(example.q.sizes());
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Results one = run(attention, example, grad);
  at::set_num_threads(2);
  const Results two = run(attention, example, grad);
  const Results again = run(attention, example, grad);
  at::set_num_threads(threads);
  expect_identical(two, one);
  expect_identical(again, one);

  Case alone = example;
  for (at::Tensor* tensor : {&alone.q, &alone.k, &alone.v, &*alone.params.key_group, &*alone.params.probes}) {
    *tensor = tensor->slice(0, 1, 2);
  }
  const auto [out, lse] = attention(alone.q, alone.k, alone.v, alone.params);
  EXPECT_TRUE(close(out, one.out.slice(0, 1, 2), 0.0));
  EXPECT_TRUE(close(lse, one.lse.slice(0, 1, 2), 0.0));
}

TEST(Attention, LseIsTheLogarithmOfTheSum) {
  const Case example =
      random_case({.heads = 2, .kv_heads = 1, .tq = 100, .tk = 120, .dim = 16, .lists = 4, .probes = 2, .window = 3});
  const auto [out, lse] = attention(example.q, example.k, example.v, example.params);
  const at::Tensor scores = at::matmul(example.q, example.k.transpose(-2, -1)) * example.params.scale;
  const at::Tensor expected = at::logsumexp(
      scores.masked_fill(~allowed_mask(1, 100, 120, example.params), -std::numeric_limits<double>::infinity()), -1);
  EXPECT_TRUE(close(lse, expected, 1e-5));
  EXPECT_EQ(lse.scalar_type(), at::kFloat);
}

TEST(Attention, LseCarriesNoGradient) {
  const Case example = random_case({.tq = 5, .tk = 5, .dim = 8});
  const auto [out, lse] = attention(example.q.clone().requires_grad_(), example.k, example.v, example.params);
  EXPECT_TRUE(out.requires_grad());
  EXPECT_FALSE(lse.requires_grad());
}

// Central differences of sum(out * weight) in float64 against the gradients of the op.
TEST(Attention, GradientsAreFiniteDifferences) {
  for (const double softcap : {0.0, 2.0}) {
    Case example = random_case({.heads = 4,
                                .kv_heads = 2,
                                .tq = 3,
                                .tk = 5,
                                .dim = 2,
                                .list_sets = 2,
                                .lists = 3,
                                .probes = 1,
                                .window = 1,
                                .softcap = softcap,
                                .document = 4,
                                .dtype = at::kDouble});
    const at::Tensor weight = at::randn(example.q.sizes(), at::kDouble);
    const Results results = run(attention, example, weight);
    const auto loss = [&] {
      return (std::get<0>(attention(example.q, example.k, example.v, example.params)) * weight).sum().item<double>();
    };
    const std::pair<at::Tensor*, at::Tensor> sides[] = {
        {&example.q, results.dq}, {&example.k, results.dk}, {&example.v, results.dv}};
    for (const auto& [input, grad] : sides) {
      *input = input->contiguous();
      at::Tensor numeric = at::empty(input->sizes(), at::kDouble);
      double* cells = input->mutable_data_ptr<double>();
      constexpr double kStep = 1e-6;
      for (int64_t x = 0; x < input->numel(); ++x) {
        const double value = cells[x];
        cells[x] = value + kStep;
        const double above = loss();
        cells[x] = value - kStep;
        const double below = loss();
        cells[x] = value;
        numeric.mutable_data_ptr<double>()[x] = (above - below) / (2 * kStep);
      }
      EXPECT_TRUE(close(grad, numeric, 1e-7, 1e-6));
    }
    // The fast path computes the same gradients.
    EXPECT_TRUE(matches_reference(as_dtype(example, at::kFloat)));
  }
}

TEST(Attention, EmptyBatchAndNoQueries) {
  Case example = random_case({.heads = 2, .kv_heads = 1, .tq = 3, .tk = 5, .dim = 8, .lists = 2, .probes = 1});
  AttentionParams params = example.params;
  params.probes = params.probes->slice(2, 0, 0);
  const auto [none, none_lse] = attention(example.q.slice(2, 0, 0), example.k, example.v, params);
  EXPECT_EQ(none.sizes(), at::IntArrayRef({1, 2, 0, 8}));
  EXPECT_EQ(none_lse.sizes(), at::IntArrayRef({1, 2, 0}));
  const auto [out, lse] = attention(example.q.slice(0, 0, 0), example.k.slice(0, 0, 0), example.v.slice(0, 0, 0), {});
  EXPECT_EQ(out.sizes(), at::IntArrayRef({0, 2, 3, 8}));
}

class Refused : public ::testing::Test {
 protected:
  Case example_ = random_case(
      {.batch = 2, .heads = 4, .kv_heads = 2, .tq = 3, .tk = 5, .dim = 8, .list_sets = 2, .lists = 2, .probes = 1});
  void expect(const std::string& words) {
    EXPECT_THAT([&] { attention(example_.q, example_.k, example_.v, example_.params); },
                ThrowsMessage<Error>(HasSubstr(words)));
  }
};

TEST_F(Refused, HeadsThatDoNotDivide) {
  example_.q = at::zeros({2, 33, 3, 8});
  expect("33 query heads cannot share 2 KV heads");
}

TEST_F(Refused, ShapesThatDoNotFit) {
  const Case good = example_;
  example_.v = at::zeros({2, 2, 5, 9});
  expect("v has shape [2, 2, 5, 9], expected that of k, [2, 2, 5, 8]");
  example_ = good;
  example_.q = at::zeros({2, 4, 6, 8});
  expect("6 queries but only 5 keys");
  example_ = good;
  example_.q = at::zeros({2, 4, 3, 16});
  expect("q has head size 16 but k has 8");
  example_ = good;
  example_.q = at::zeros({4, 3, 8});
  expect("q has shape [4, 3, 8]");
  example_ = good;
  example_.params.key_group = at::zeros({2, 2, 4}, at::kInt);
  expect("key_group has shape [2, 2, 4], expected [2, 1 or 2, 5]");
  example_ = good;
  example_.params.key_group = at::zeros({2, 4, 5}, at::kInt);
  expect("key_group has 4 list sets, expected 1 or one for each of the 2 KV heads");
  example_ = good;
  example_.params.probes = at::zeros({2, 2, 5, 1}, at::kInt);
  expect("probes has shape [2, 2, 5, 1], expected [2, 2, 3, P]");
  example_ = good;
  example_.params.document_start = at::zeros({2, 3}, at::kInt);
  expect("document_start has shape [2, 3], expected [2, 5]");
}

TEST_F(Refused, DtypesAndValues) {
  const Case good = example_;
  example_.k = example_.k.to(at::kHalf);
  example_.v = example_.v.to(at::kHalf);
  expect("k has dtype Half but q has Float");
  example_ = good;
  example_.params.probes = example_.params.probes->to(at::kLong);
  expect("probes has dtype Long, expected Int");
  example_ = good;
  example_.params.probes.reset();
  expect("key_group and probes must be given together");
  example_ = good;
  example_.params.window = -1;
  expect("window is -1");
  example_ = good;
  example_.params.key_group = at::full({2, 2, 5}, 1 << 20, at::kInt);
  expect("key_group holds list id 1048576");
  example_ = good;
  example_.params.probes = at::full({2, 2, 3, 1}, -7, at::kInt);
  expect("probes holds list id -7");
  example_ = good;
  for (at::Tensor* tensor : {&example_.q, &example_.k, &example_.v}) *tensor = at::zeros(tensor->sizes(), at::kInt);
  expect("q has dtype Int, expected a floating dtype");
}

}  // namespace
}  // namespace focus
