#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>

#include "attention/methods/focus_attention.h"
#include "attention/methods/full.h"
#include "attention/methods/list_cache.h"
#include "attention/methods/random_groups.h"
#include "attention/methods/registry.h"
#include "attention/methods/testing.h"
#include "attention/methods/window.h"
#include "attention/routing/testing.h"
#include "base/error.h"

namespace focus {
namespace {

using method_testing::in_chunks;
using method_testing::slice;

using testing_support::random_router;

constexpr int64_t kHidden = 48;
constexpr int64_t kHeads = 6;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kDim = 20;

RoutingConfig small_config() {
  RoutingConfig config;
  config.groups = 12;
  config.groups_per_token = 3;
  config.window = 7;
  config.sinks = 2;
  return config;
}

AttentionInput random_input(int64_t batch, int64_t tokens, uint64_t seed) {
  at::manual_seed(seed);
  AttentionInput input;
  input.hidden = at::randn({batch, tokens, kHidden});
  input.q = at::randn({batch, kHeads, tokens, kDim});
  input.k = at::randn({batch, kKvHeads, tokens, kDim});
  input.v = at::randn({batch, kKvHeads, tokens, kDim});
  input.scale = 0.3;
  return input;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_TRUE(at::isfinite(a).all().item<bool>());
  return (a - b).abs().max().item<double>();
}

std::vector<std::unique_ptr<AttentionMethod>> all_methods() {
  std::vector<std::unique_ptr<AttentionMethod>> methods;
  RoutingConfig config = small_config();
  const auto add_focus = [&methods](const RoutingConfig& c, const std::vector<int64_t>& layers) {
    methods.push_back(
        std::make_unique<FocusAttention>(std::make_shared<Router>(random_router(c, layers, kHidden, kKvHeads, 1))));
  };
  add_focus(config, {0});
  add_focus(config, {5});  // layer 0 attends densely
  const auto scales = std::make_shared<const HeadScales>(HeadScales{
      {0, {.score_factor = at::linspace(0.5, 2.0, kHeads), .output_gain = at::linspace(1.5, -0.5, kHeads)}}});
  for (const int64_t layer : {0, 5}) {
    methods.push_back(std::make_unique<FocusAttention>(
        std::make_shared<Router>(random_router(config, {layer}, kHidden, kKvHeads, 1)), scales));
  }
  methods.push_back(std::make_unique<FullAttention>(scales));
  methods.push_back(std::make_unique<WindowAttention>(config));
  methods.push_back(std::make_unique<RandomGroups>(config, 3));
  config.shared = config.global_group = true;
  add_focus(config, {0});
  methods.push_back(std::make_unique<RandomGroups>(config, 3));
  config = RoutingConfig::symmetric_defaults();
  config.groups_per_token = 2;
  config.window = 3;
  add_focus(config, {0});
  return methods;
}

TEST(Methods, OnePassEqualsChunksEqualsTokenByToken) {
  const AttentionInput input = random_input(2, 150, 2);
  for (const auto& method : all_methods()) {
    const at::Tensor whole = method->attend(input);
    const PairCount once = method->pairs();
    for (const int64_t chunk : {1, 17, 100, 512}) {
      method->reset_pairs();
      EXPECT_LT(difference(in_chunks(*method, input, chunk), whole), 2e-5) << method->name() << " chunk " << chunk;
      EXPECT_EQ(method->pairs().kept, once.kept) << method->name() << " chunk " << chunk;
      EXPECT_EQ(method->pairs().causal, once.causal) << method->name() << " chunk " << chunk;
    }
  }
}

TEST(Methods, DocumentsLayerWindowsAndSoftcapWithACache) {
  AttentionInput input = random_input(2, 90, 3);
  // Row 0: two packed documents; row 1: five positions of padding in front.
  at::Tensor starts = at::zeros({2, 90}, at::kInt);
  starts[0].slice(0, 40).fill_(40);
  starts[1].fill_(5);
  input.document_start = starts;
  input.softcap = 2.0;
  for (const int64_t layer_window : {0, 11}) {
    input.layer_window = layer_window;
    for (const auto& method : all_methods()) {
      const at::Tensor whole = method->attend(input);
      EXPECT_EQ(whole[1].slice(1, 0, 5).abs().max().item<double>(), 0.0) << method->name();
      for (const int64_t chunk : {1, 13}) {
        EXPECT_LT(difference(in_chunks(*method, input, chunk), whole), 2e-5) << method->name() << " chunk " << chunk;
      }
      // The second document alone, and the padded row without its padding.
      AttentionInput alone = slice(input, 40, 90);
      alone.document_start.reset();
      EXPECT_LT(difference(method->attend(alone)[0], whole[0].slice(1, 40)), 2e-5) << method->name();
      alone = slice(input, 5, 90);
      alone.document_start.reset();
      EXPECT_LT(difference(method->attend(alone)[1], whole[1].slice(1, 5)), 2e-5) << method->name();
    }
  }
}

TEST(Methods, LaterTokensChangeNothingAndTruncationForgets) {
  AttentionInput input = random_input(1, 120, 4);
  for (const auto& method : all_methods()) {
    AttentionInput changed = random_input(1, 120, 5);
    for (auto [to, from] : {std::pair{&changed.q, &input.q}, {&changed.k, &input.k}, {&changed.v, &input.v}}) {
      to->slice(2, 0, 60).copy_(from->slice(2, 0, 60));
    }
    changed.hidden.slice(1, 0, 60).copy_(input.hidden.slice(1, 0, 60));
    const at::Tensor whole = method->attend(input);
    EXPECT_LT(difference(method->attend(changed).slice(2, 0, 60), whole.slice(2, 0, 60)), 1e-6) << method->name();

    const auto cache = method->make_cache(0, 1, 120);
    AttentionInput part = slice(changed, 0, 90);
    part.cache = cache.get();
    method->attend(part);
    cache->truncate(60);
    EXPECT_EQ(cache->length(), 60);
    for (int64_t t = 60; t < 120; ++t) {
      part = slice(input, t, t + 1);
      part.cache = cache.get();
      EXPECT_LT(difference(method->attend(part), whole.slice(2, t, t + 1)), 2e-5) << method->name() << " at " << t;
    }
    EXPECT_GT(cache->bytes(), 120 * kKvHeads * kDim * 4);
  }
}

TEST(Methods, WideWindowOrAllListsEqualFullAttention) {
  const AttentionInput input = random_input(1, 70, 6);
  const at::Tensor full = make_method("full", {})->attend(input);
  RoutingConfig config = small_config();
  config.window = 70;
  EXPECT_LT(difference(WindowAttention(config).attend(input), full), 2e-5);
  config.window = 0;
  config.groups_per_token = config.groups;
  FocusAttention focus(std::make_shared<Router>(random_router(config, {0}, kHidden, kKvHeads, 7)));
  EXPECT_LT(difference(focus.attend(input), full), 2e-5);
  EXPECT_LT(difference(in_chunks(focus, input, 1), full), 2e-5);
  EXPECT_EQ(focus.pairs().kept, focus.pairs().causal);
}

TEST(Methods, ScaledHeadsEqualScaledQueriesAndOutputs) {
  const AttentionInput input = random_input(2, 60, 12);
  at::manual_seed(13);
  const HeadScale scale{.score_factor = at::rand({kHeads}) + 0.5, .output_gain = at::randn({kHeads})};
  const auto scales = std::make_shared<const HeadScales>(HeadScales{{0, scale}});
  const auto router = std::make_shared<Router>(random_router(small_config(), {0}, kHidden, kKvHeads, 1));
  AttentionInput by_hand = input;
  by_hand.q = input.q * scale.score_factor.view({1, kHeads, 1, 1});
  const at::Tensor before = input.q.clone();
  const auto compare = [&](AttentionMethod& scaled, AttentionMethod& plain) {
    const at::Tensor expected = plain.attend(by_hand) * scale.output_gain.view({1, kHeads, 1, 1});
    EXPECT_TRUE(at::equal(scaled.attend(input), expected)) << scaled.name();
    EXPECT_GT(difference(plain.attend(input), expected), 0.1) << scaled.name();
  };
  FocusAttention focus(router), scaled_focus(router, scales);
  FullAttention full, scaled_full(scales);
  compare(scaled_focus, focus);
  compare(scaled_full, full);
  EXPECT_TRUE(at::equal(input.q, before));
  // As under a gradient, where nothing may be written over.
  const at::Tensor plain = scaled_focus.attend(input);
  AttentionInput leaf = input;
  leaf.q = input.q.clone().set_requires_grad(true);
  EXPECT_TRUE(at::equal(scaled_focus.attend(leaf).detach(), plain));
  AttentionInput other = input;
  other.q = input.q.narrow(1, 0, 2);
  EXPECT_THROW(scaled_full.attend(other), Error);
}

TEST(Methods, HalfPrecisionDecodeFollowsThePass) {
  AttentionInput input = random_input(1, 60, 8);
  for (at::Tensor* x : {&input.q, &input.k, &input.v, &input.hidden}) *x = x->to(at::kBFloat16);
  FocusAttention focus(std::make_shared<Router>(random_router(small_config(), {0}, kHidden, kKvHeads, 9)));
  const at::Tensor one_by_one = in_chunks(focus, input, 1);
  EXPECT_EQ(one_by_one.scalar_type(), at::kBFloat16);
  EXPECT_LT(difference(one_by_one.to(at::kFloat), focus.attend(input).to(at::kFloat)), 0.05);
}

TEST(Methods, DecodeReadsAllowedKeysOnly) {
  const AttentionInput input = random_input(1, 200, 10);
  RandomGroups method(small_config(), 1);
  const auto cache = method.make_cache(0, 1, 200);
  AttentionInput part = slice(input, 0, 199);
  part.cache = cache.get();
  method.attend(part);
  const auto& lists = dynamic_cast<ListCache&>(*cache);
  // Poison every key that lies neither in the window, nor in the sinks, nor in a probed list of any set.
  method.reset_pairs();
  AttentionInput last = slice(input, 199, 200);
  last.cache = cache.get();
  const at::Tensor expected = method.attend(last);
  const PairCount count = method.pairs();
  EXPECT_LT(count.kept, count.causal / 2);
  cache->truncate(199);
  const at::Tensor reached = at::zeros({kKvHeads, 199}, at::kBool);
  AttentionInput probe = slice(input, 199, 200);
  for (int64_t j = 0; j < 199; ++j) {  // a key counts if raising its value changes the result
    auto values = lists.values();
    const at::Tensor old = values[0].select(1, j).clone();
    values[0].select(1, j).fill_(1e4);
    probe.cache = cache.get();
    const at::Tensor out = method.attend(probe);
    cache->truncate(199);
    values[0].select(1, j).copy_(old);
    const at::Tensor moved = (out - expected).abs().amax({0, 2, 3}).view({kKvHeads, kHeads / kKvHeads}).amax(1) > 0;
    reached.select(1, j).copy_(moved);
  }
  EXPECT_EQ(reached.sum().item<int64_t>() + kKvHeads, count.kept);
}

RC_GTEST_PROP(Methods, RandomGroupsAreDistinctAndSpread, ()) {
  RoutingConfig config = small_config();
  config.groups = *rc::gen::inRange<int64_t>(1, 40);
  config.groups_per_token = *rc::gen::inRange<int64_t>(1, config.groups + 1);
  struct Open : RandomGroups {
    using RandomGroups::RandomGroups;
    using RandomGroups::route;
  };
  Open method(config, *rc::gen::arbitrary<uint64_t>());
  AttentionInput input = random_input(1, 50, 1);
  const Routes routes = method.route(input, testing_support::positions(1, 50));
  const at::Tensor sorted = std::get<0>(routes.probes.slice(-1, 1).sort(-1));
  RC_ASSERT(sorted.ge(1).all().item<bool>() && sorted.le(config.groups).all().item<bool>());
  RC_ASSERT(!sorted.slice(-1, 1).eq(sorted.slice(-1, 0, -1)).any().item<bool>());
  RC_ASSERT(routes.key_group.slice(-1, 2).ge(1).all().item<bool>());
  RC_ASSERT(routes.key_group.le(config.groups).all().item<bool>());
}

TEST(Methods, DominanceCountsContentLists) {
  RoutingConfig config = small_config();
  RandomGroups method(config, 5);
  method.attend(random_input(2, 600, 11));
  const Dominance even = method.dominance();
  EXPECT_GT(even.largest(), 1.0 / 12);
  EXPECT_LT(even.largest(), 0.13);
  EXPECT_EQ(even.unused_lists.at(0), 0);
  method.reset_dominance();
  EXPECT_EQ(method.dominance().largest(), 0.0);

  const Router base = random_router(config, {0}, kHidden, kKvHeads, 12);
  auto layers = base.layers();
  layers.at(0).potentials = layers.at(0).potentials.clone();
  layers.at(0).potentials[1][4] = 1e6;  // everything in set 1 falls into one list
  FocusAttention collapsed(std::make_shared<Router>(config, layers));
  collapsed.attend(random_input(1, 300, 13));
  EXPECT_EQ(collapsed.dominance().largest(), 1.0);
  EXPECT_GE(collapsed.dominance().unused_lists.at(0), 11);

  RoutingConfig symmetric = RoutingConfig::symmetric_defaults();
  symmetric.groups_per_token = 2;
  FocusAttention pairs(std::make_shared<Router>(random_router(symmetric, {0}, kHidden, kKvHeads, 14)));
  pairs.attend(random_input(1, 300, 15));
  EXPECT_GE(pairs.dominance().largest(), 1.0 / 8);
  EXPECT_LE(pairs.dominance().largest(), 0.5);
}

TEST(Methods, RefuseWhatTheyCannotDo) {
  RoutingConfig config = RoutingConfig::symmetric_defaults();
  config.routing = RoutingMode::kPaper;
  FocusAttention paper(std::make_shared<Router>(random_router(config, {0}, kHidden, kKvHeads, 16)));
  EXPECT_FALSE(paper.is_causal());
  EXPECT_NO_THROW(paper.attend(random_input(1, 30, 17)));
  EXPECT_THROW(paper.make_cache(0, 1, 10), Error);

  FocusAttention focus(std::make_shared<Router>(random_router(small_config(), {0}, kHidden, 3, 18)));
  EXPECT_THROW(focus.attend(random_input(1, 30, 19)), Error);  // 3 list sets, 2 KV heads
  WindowAttention window(small_config());
  AttentionInput input = random_input(1, 30, 20);
  const auto foreign = make_method("full", {})->make_cache(0, 1, 64);
  input.cache = foreign.get();
  EXPECT_THROW(window.attend(input), Error);
}

TEST(Registry, NamesTheNearest) {
  EXPECT_THAT(method_names(), testing::IsSupersetOf({"focus", "full", "window", "random-groups"}));
  for (const std::string name : {"full", "window", "random-groups"}) {
    EXPECT_EQ(make_method(name, {})->name(), name);
  }
  try {
    make_method("windw", {});
    FAIL() << "accepted";
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("did you mean window?"));
  }
  EXPECT_THROW(make_method("focus", {}), UsageError);
  MethodOptions options;
  options.routing.window = -1;
  EXPECT_THROW(make_method("window", options), UsageError);
}

}  // namespace
}  // namespace focus
