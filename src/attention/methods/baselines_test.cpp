#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "attention/methods/performer.h"
#include "attention/methods/registry.h"
#include "attention/methods/testing.h"
#include "attention/testing.h"
#include "base/error.h"

namespace focus {
namespace {

using method_testing::in_chunks;
using method_testing::slice;

constexpr int64_t kHeads = 6;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kDim = 16;

// Every comparison method, with parameters small enough to leave pairs out at 150 tokens.
MethodOptions small_options() {
  MethodOptions o;
  o.routing.window = 9;
  o.routing.sinks = 2;
  o.seed = 5;
  o.baselines.block_size = 8;
  o.baselines.random_blocks = 2;
  o.baselines.global_every = 50;
  o.baselines.dilation = 3;
  o.baselines.dilated_heads = 1;
  o.baselines.top_keys = 11;
  o.baselines.query_components = 5;
  o.baselines.hash_bits = 3;
  o.baselines.hash_tables = 6;
  o.baselines.features = 24;
  o.baselines.clusters = 5;
  o.baselines.cluster_keys = 9;
  o.baselines.pool = 6;
  return o;
}

const std::vector<std::string> kCausal = {"longformer",
                                          "bigbird",
                                          "oracle",
                                          "moba",
                                          "nsa-blocks",
                                          "sparq",
                                          "magicpig",
                                          "performer",
                                          "routing-transformer-causal",
                                          "linformer-causal"};
const std::vector<std::string> kLeaking = {"routing-transformer", "linformer"};

AttentionInput random_input(int64_t batch, int64_t tokens, uint64_t seed) {
  at::manual_seed(seed);
  AttentionInput input;
  input.hidden = at::zeros({batch, tokens, 1});
  input.q = at::randn({batch, kHeads, tokens, kDim});
  input.k = at::randn({batch, kKvHeads, tokens, kDim});
  input.v = at::randn({batch, kKvHeads, tokens, kDim});
  input.scale = 0.4;
  return input;
}

TEST(Baselines, OnePassEqualsChunksEqualsTokenByToken) {
  const AttentionInput input = random_input(2, 150, 2);
  for (const std::string& name : kCausal) {
    const auto method = make_method(name, small_options());
    EXPECT_TRUE(method->is_causal());
    const at::Tensor whole = method->attend(input);
    const PairCount once = method->pairs();
    EXPECT_EQ(once.causal, 2 * kHeads * 150 * 151 / 2) << name;
    for (const int64_t chunk : {1, 17, 100}) {
      method->reset_pairs();
      EXPECT_TRUE(testing::close(in_chunks(*method, input, chunk), whole, 2e-5)) << name << " chunk " << chunk;
      EXPECT_EQ(method->pairs().kept, once.kept) << name << " chunk " << chunk;
      EXPECT_EQ(method->pairs().causal, once.causal) << name << " chunk " << chunk;
    }
  }
}

TEST(Baselines, LaterTokensChangeNothing) {
  const AttentionInput input = random_input(1, 170, 4);
  for (const std::string& name : kCausal) {
    const auto method = make_method(name, small_options());
    const at::Tensor whole = method->attend(input);
    for (const int64_t prefix : {1, 60, 64, 101}) {
      AttentionInput changed = random_input(1, 170, 5);
      for (auto [to, from] : {std::pair{&changed.q, &input.q}, {&changed.k, &input.k}, {&changed.v, &input.v}}) {
        to->mul_(3).slice(2, 0, prefix).copy_(from->slice(2, 0, prefix));
      }
      const at::Tensor part = method->attend(changed).slice(2, 0, prefix);
      EXPECT_TRUE(testing::close(part, whole.slice(2, 0, prefix), 2e-6)) << name << " prefix " << prefix;
    }
  }
}

TEST(Baselines, PerformerHoldsForLongKeys) {
  AttentionInput input = random_input(1, 150, 7);
  const at::Tensor unit = input.k / input.k.norm(2, -1, true);
  // The features of the longest are below e^-700, those of the last ones near 1.
  at::Tensor lengths = at::full({150, 1}, 120.0);
  lengths.slice(0, 100) = 1.0;
  lengths.slice(0, 30, 40) = 60.0;
  input.k = unit * lengths;
  MethodOptions options = small_options();
  const auto method = make_method("performer", options);
  const at::Tensor got = method->attend(input);

  const at::Tensor w = orthogonal_features(options.baselines.features, kDim, options.seed);
  const auto exponents = [&](const at::Tensor& x) {
    const at::Tensor scaled = x.to(at::kDouble) * std::sqrt(input.scale);
    return at::matmul(scaled, w.t()) - scaled.square().sum(-1, true) / 2;
  };
  const at::Tensor power_k = exponents(input.k).repeat_interleave(kHeads / kKvHeads, 1);  // [1, Hq, T, m]
  const at::Tensor sums = exponents(input.q).unsqueeze(3) + power_k.unsqueeze(2);         // [1, Hq, T, T, m]
  at::Tensor scores = sums.logsumexp(-1);
  scores = scores.masked_fill(at::ones({150, 150}, at::kBool).triu(1), -std::numeric_limits<double>::infinity());
  const at::Tensor values = input.v.to(at::kDouble).repeat_interleave(kHeads / kKvHeads, 1);
  EXPECT_TRUE(testing::close(got, at::matmul(scores.softmax(-1), values).to(at::kFloat), 2e-5));
  EXPECT_TRUE(testing::close(in_chunks(*method, input, 17), got, 2e-5));

  AttentionInput changed = slice(input, 0, 150);
  changed.k = input.k.clone();
  changed.k.slice(2, 90).mul_(0.01);
  EXPECT_TRUE(at::equal(method->attend(changed).slice(2, 0, 90), got.slice(2, 0, 90)));
}

TEST(Baselines, ThoseThatLeakSaySo) {
  const AttentionInput input = random_input(1, 100, 4);
  AttentionInput changed = input;
  for (at::Tensor* x : {&changed.q, &changed.k, &changed.v}) {
    *x = x->clone();
    x->slice(2, 60).mul_(-2);
  }
  for (const std::string& name : kLeaking) {
    const auto method = make_method(name, small_options());
    EXPECT_FALSE(method->is_causal());
    EXPECT_FALSE(testing::close(method->attend(changed).slice(2, 0, 60), method->attend(input).slice(2, 0, 60), 1e-2));
    EXPECT_THROW(method->make_cache(0, 1, 100), Error);
  }
}

TEST(Baselines, PackedDocumentsAndPaddingAreSeparate) {
  AttentionInput input = random_input(2, 150, 6);
  at::Tensor starts = at::zeros({2, 150}, at::kInt);
  starts[0].slice(0, 70).fill_(70);
  starts[1].fill_(5);  // five positions of padding
  input.document_start = starts;
  for (const std::string& name : kCausal) {
    const auto method = make_method(name, small_options());
    const at::Tensor whole = method->attend(input);
    EXPECT_EQ(whole[1].slice(1, 0, 5).abs().max().item<double>(), 0.0) << name;
    EXPECT_TRUE(testing::close(in_chunks(*method, input, 13), whole, 2e-5)) << name;
    AttentionInput alone = slice(input, 70, 150);
    alone.document_start.reset();
    EXPECT_TRUE(testing::close(method->attend(alone)[0], whole[0].slice(1, 70), 2e-5)) << name;
    alone = slice(input, 5, 150);
    alone.document_start.reset();
    EXPECT_TRUE(testing::close(method->attend(alone)[1], whole[1].slice(1, 5), 2e-5)) << name;
  }
}

TEST(Baselines, HalfPrecisionIsSummedInSingle) {
  AttentionInput input = random_input(1, 100, 7);
  for (at::Tensor* x : {&input.q, &input.k, &input.v}) *x = x->to(at::kBFloat16);
  AttentionInput exact = input;
  for (at::Tensor* x : {&exact.q, &exact.k, &exact.v}) *x = x->to(at::kFloat);
  for (const std::string& name : kCausal) {
    const auto method = make_method(name, small_options());
    const at::Tensor out = method->attend(input);
    EXPECT_EQ(out.scalar_type(), at::kBFloat16);
    EXPECT_TRUE(testing::close(out.to(at::kFloat), method->attend(exact), 1e-6, 0x1p-8)) << name;
    EXPECT_TRUE(testing::close(in_chunks(*method, input, 1).to(at::kFloat), out.to(at::kFloat), 1e-6, 0x1p-7)) << name;
  }
}

// Each method with everything allowed is full attention; so is each whose window spans the text.
TEST(Baselines, EverythingAllowedIsFullAttention) {
  AttentionInput input = random_input(1, 130, 8);
  const std::vector<std::pair<std::string, std::function<void(MethodOptions&)>>> open = {
      {"longformer", [](MethodOptions& o) { o.baselines.global_every = 1; }},
      {"bigbird", [](MethodOptions& o) { o.baselines.random_blocks = 1000, o.routing.window = 7; }},
      {"oracle", [](MethodOptions& o) { o.baselines.top_keys = 1000; }},
      {"oracle", [](MethodOptions& o) { o.baselines.top_mass = 1.0; }},
      {"moba", [](MethodOptions& o) { o.baselines.top_blocks = 1000; }},
      {"nsa-blocks", [](MethodOptions& o) { o.baselines.top_blocks = 1000; }},
      {"sparq", [](MethodOptions& o) { o.baselines.top_keys = 1000; }},
      {"magicpig", [](MethodOptions& o) { o.baselines.hash_bits = 1, o.baselines.hash_tables = 200; }},
      {"routing-transformer", [](MethodOptions& o) { o.baselines.clusters = 1, o.baselines.cluster_keys = 1000; }},
      {"routing-transformer-causal", [](MethodOptions& o) { o.baselines.cluster_keys = 1000, o.routing.window = 64; }},
  };
  for (const int64_t layer_window : {0, 40}) {
    for (const double softcap : {0.0, 1.5}) {
      input.layer_window = layer_window;
      input.softcap = softcap;
      const at::Tensor full = make_method("full", {})->attend(input);
      for (const auto& [name, widen] : open) {
        MethodOptions options = small_options();
        EXPECT_FALSE(testing::close(make_method(name, options)->attend(input), full, 1e-2)) << name;
        widen(options);
        const auto method = make_method(name, options);
        EXPECT_TRUE(testing::close(method->attend(input), full, 2e-5)) << name;
        if (layer_window > 0 || options.baselines.top_mass) continue;
        EXPECT_EQ(method->pairs().kept, method->pairs().causal) << name;
      }
    }
  }
}

TEST(Baselines, KeysThatAreNotMixedAreFullAttention) {
  AttentionInput input = random_input(1, 130, 12);
  input.softcap = 1.5;
  MethodOptions options = small_options();
  options.baselines.pool = 1;
  const at::Tensor full = make_method("full", {})->attend(input);
  const auto causal = make_method("linformer-causal", options);
  EXPECT_TRUE(testing::close(causal->attend(input), full, 2e-5));
  EXPECT_EQ(causal->pairs().kept, causal->pairs().causal);
  // The published form has no mask: its last query alone sees what full attention sees.
  const at::Tensor open = make_method("linformer", options)->attend(input);
  EXPECT_TRUE(testing::close(open.slice(2, -1), full.slice(2, -1), 2e-5));
}

// The features estimate the softmax kernel: the error falls with their number, as 1 / sqrt(m).
TEST(Baselines, PerformerComesNearFullAttention) {
  AttentionInput input = random_input(1, 90, 13);
  input.scale = 0.1;
  const at::Tensor full = make_method("full", {})->attend(input);
  MethodOptions options;
  double error = 1;
  for (const int64_t features : {32, 512, 8192}) {
    options.baselines.features = features;
    const at::Tensor out = make_method("performer", options)->attend(input);
    const double now = (out - full).square().mean().sqrt().item<double>();
    EXPECT_LT(now, 0.5 * error) << features;
    error = now;
  }
  EXPECT_LT(error, 0.02);
}

// Draws weighted by 1 / u: over many seeds the mean of numerator and denominator is that of all keys; the ratio comes
// near full attention where half of the pairs are drawn.
TEST(Baselines, MagicPigCorrectsForItsDraws) {
  const AttentionInput input = random_input(1, 120, 14);
  MethodOptions options = small_options();
  options.baselines.hash_bits = 2;
  const at::Tensor full = make_method("full", {})->attend(input);
  at::Tensor mean = at::zeros_like(full);
  double single = 0;
  constexpr int kSeeds = 40;
  for (int seed = 0; seed < kSeeds; ++seed) {
    options.seed = static_cast<uint64_t>(seed);
    const at::Tensor out = make_method("magicpig", options)->attend(input);
    single += (out - full).square().mean().item<double>() / kSeeds;
    mean += out / kSeeds;
  }
  EXPECT_LT((mean - full).square().mean().item<double>(), 0.2 * single);
}

TEST(Baselines, GradientsPassThrough) {
  for (const std::string& name : kCausal) {
    AttentionInput input = random_input(1, 70, 9);
    for (at::Tensor* x : {&input.q, &input.k, &input.v}) x->requires_grad_();
    make_method(name, small_options())->attend(input).square().sum().backward();
    for (const at::Tensor& x : {input.q, input.k, input.v}) {
      EXPECT_TRUE(x.grad().isfinite().all().item<bool>()) << name;
      EXPECT_GT(x.grad().abs().max().item<double>(), 0.0) << name;
    }
  }
}

TEST(Baselines, RefuseWhatTheyCannotDo) {
  MethodOptions options = small_options();
  options.baselines.dilated_heads = 3;
  EXPECT_THROW(make_method("longformer", options)->attend(random_input(1, 20, 10)), Error);
  options.baselines.block_size = 6;
  EXPECT_THROW(make_method("nsa-blocks", options), UsageError);
  options.routing.window = -1;
  for (const std::string& name : kCausal) {
    if (name == "performer") continue;
    EXPECT_THROW(make_method(name, options), UsageError) << name;
  }
  options = small_options();
  options.baselines.query_components = kDim + 1;
  EXPECT_THROW(make_method("sparq", options)->attend(random_input(1, 20, 10)), Error);
  AttentionInput windowed = random_input(1, 20, 10);
  windowed.layer_window = 19;
  AttentionInput capped = random_input(1, 20, 10);
  capped.softcap = 2;
  EXPECT_THROW(make_method("performer", options)->attend(capped), Error);
  for (const std::string name : {"performer", "linformer", "linformer-causal"}) {
    EXPECT_THROW(make_method(name, options)->attend(windowed), Error) << name;
  }
  const auto method = make_method("moba", small_options());
  AttentionInput input = random_input(1, 20, 11);
  const auto foreign = make_method("window", small_options())->make_cache(0, 1, 64);
  input.cache = foreign.get();
  EXPECT_THROW(method->attend(input), Error);
}

}  // namespace
}  // namespace focus
