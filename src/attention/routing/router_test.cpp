#include "attention/routing/router.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <limits>

#include "attention/routing/formulas.h"
#include "attention/routing/testing.h"
#include "base/error.h"

namespace focus {
namespace {

using testing_support::positions;
using testing_support::random_router;

void expect_usage(const std::string& text, RoutingConfig config) {
  try {
    config.validate();
    FAIL() << "accepted, expected: " << text;
  } catch (const UsageError& e) {
    EXPECT_EQ(std::string(e.what()).substr(0, text.size()), text);
  }
}

TEST(RoutingConfig, RefusesWhatMakesNoSense) {
  RoutingConfig config;
  EXPECT_NO_THROW(config.validate());
  EXPECT_NO_THROW(RoutingConfig::symmetric_defaults().validate());
  const auto with = [](auto change) {
    RoutingConfig c;
    change(c);
    return c;
  };
  expect_usage("--groups 0:", with([](auto& c) { c.groups = 0; }));
  expect_usage("--groups 4096:", with([](auto& c) { c.groups = 4096; }));
  expect_usage("--groups-per-token 65: at most --groups 64", with([](auto& c) { c.groups_per_token = 65; }));
  expect_usage("--groups-per-token 0:", with([](auto& c) { c.groups_per_token = 0; }));
  expect_usage("--window -1:", with([](auto& c) { c.window = -1; }));
  expect_usage("--sinks -1:", with([](auto& c) { c.sinks = -1; }));
  expect_usage("--group-dim 0:", with([](auto& c) { c.group_dim = 0; }));
  expect_usage("--tau 0", with([](auto& c) { c.tau = 0; }));
  expect_usage("--tau nan", with([](auto& c) { c.tau = std::numeric_limits<double>::quiet_NaN(); }));
  expect_usage("--sinkhorn-iters 0:", with([](auto& c) { c.sinkhorn_iters = 0; }));
  expect_usage("--global-group:", with([](auto& c) { c.symmetric = c.global_group = true, c.groups_per_token = 1; }));
  expect_usage("--routing paper:", with([](auto& c) { c.routing = RoutingMode::kPaper; }));
  expect_usage("--symmetric:", with([](auto& c) { c.symmetric = true, c.groups_per_token = 3; }));
  EXPECT_THROW(parse_routing_mode("noncausal"), UsageError);
}

TEST(Router, AgreesWithTheFormulasUpToRounding) {
  for (const bool global : {false, true}) {
    RoutingConfig config;
    config.global_group = global;
    config.sinks = 0;
    const Router router = random_router(config, {3}, 96, 3, 1);
    const LayerRouter& w = router.layers().at(3);
    const at::Tensor h = at::randn({2, 203, 96});
    const Routes routes = router.route(3, h, positions(2, 203));
    const at::Tensor lists = key_list_scores(key_features(h, w.key_projection, w.key_bias, config.tau), w.codebook,
                                             w.potentials, config.tau);
    const at::Tensor wanted = probe_scores(query_features(h, w.query_projection), w.codebook, config.tau);
    const int64_t to_id = global ? 0 : 1;
    const at::Tensor entry = routes.key_group.to(at::kLong) - to_id;
    const at::Tensor chosen = lists.gather(-1, entry.unsqueeze(-1)).squeeze(-1);
    EXPECT_LT((std::get<0>(lists.max(-1)) - chosen).abs().max().item<double>(), 1e-3);
    EXPECT_GT(entry.eq(lists.argmax(-1)).to(at::kFloat).mean().item<double>(), 0.999);
    EXPECT_TRUE(routes.probes.select(-1, 0).eq(0).all().item<bool>());
    const at::Tensor probed = wanted.gather(-1, routes.probes.slice(-1, 1).to(at::kLong) - to_id);
    const at::Tensor best = std::get<0>(wanted.slice(-1, global ? 1 : 0).topk(config.groups_per_token));
    EXPECT_LT((probed - best).abs().max().item<double>(), 1e-3);
  }
}

TEST(Router, EverySetHasItsOwnNumberOfProbes) {
  const RoutingConfig config;  // 8 of 64
  const Router uniform = random_router(config, {0}, 48, 3, 9);
  EXPECT_EQ(uniform.probes(0), (std::vector<int64_t>{8, 8, 8}));
  LayerRouter layer = uniform.layers().at(0);
  layer.probe_exponent = at::tensor({0.5F, 1.0F, 5.0F});
  const Router router(config, {{0, layer}});
  EXPECT_EQ(router.probes(0), (std::vector<int64_t>{23, 8, 1}));  // 64 / sqrt(8), 8, at least 1
  const at::Tensor h = at::randn({2, 70, 48});
  const Routes few = uniform.route(0, h, positions(2, 70)), many = router.route(0, h, positions(2, 70));
  EXPECT_TRUE(at::equal(few.key_group, many.key_group));
  ASSERT_EQ(many.probes.size(3), 24);
  EXPECT_TRUE(at::equal(many.probes.select(1, 0).slice(-1, 0, 9), few.probes.select(1, 0)));
  EXPECT_TRUE(at::equal(many.probes.select(1, 1).slice(-1, 0, 9), few.probes.select(1, 1)));
  EXPECT_TRUE(at::equal(many.probes.select(1, 2).slice(-1, 0, 2), few.probes.select(1, 2).slice(-1, 0, 2)));
  EXPECT_GE(many.probes.select(1, 0).min().item<int32_t>(), 0);
  EXPECT_TRUE(many.probes.select(1, 1).slice(-1, 9).eq(-1).all().item<bool>());
  EXPECT_TRUE(many.probes.select(1, 2).slice(-1, 2).eq(-1).all().item<bool>());
  RoutingConfig all = config;
  all.groups_per_token = 64;
  EXPECT_EQ(router.with_config(all).probes(0), (std::vector<int64_t>{64, 64, 64}));
  EXPECT_THROW(router.probes(1), Error);
  layer.probe_exponent = at::tensor({0.5F, 1.0F, 0.0F});
  EXPECT_THROW(Router(config, {{0, layer}}), Error);
}

TEST(Router, IndexScoreIsTheCosineFormula) {
  const Router router = random_router({}, {0}, 40, 2, 2);
  const LayerRouter& w = router.layers().at(0);
  const at::Tensor h = at::randn({7, 40});
  const at::Tensor s =
      index_scores(query_features(h, w.query_projection), key_features(h, w.key_projection, w.key_bias, 0.1), 0.1);
  for (int64_t g = 0; g < 2; ++g) {
    const at::Tensor q = at::matmul(h, w.query_projection[g].t());
    const at::Tensor k = at::matmul(h, w.key_projection[g].t());
    const at::Tensor cosine = at::cosine_similarity(q.unsqueeze(1), k.unsqueeze(0), -1);
    EXPECT_TRUE(at::allclose(s[g], cosine / 0.1 + at::mv(h, w.key_bias[g]).unsqueeze(0), 1e-4, 1e-4));
  }
}

// One pass == chunks == token by token, bit for bit: `config` over 1300 tokens.
void expect_same_in_pieces(const RoutingConfig& config) {
  const Router router = random_router(config, {0}, 80, 3, 3);
  const at::Tensor h = at::randn({2, 1300, 80});
  const at::Tensor position = positions(2, 1300);
  const Routes whole = router.route(0, h, position);
  for (const int64_t chunk : {1, 17, 512}) {
    for (int64_t t = 0; t < 1300; t += chunk) {
      const int64_t end = std::min<int64_t>(1300, t + chunk);
      const Routes part = router.route(0, h.slice(1, t, end), position.slice(1, t, end));
      ASSERT_TRUE(at::equal(part.key_group, whole.key_group.slice(2, t, end))) << "chunk " << chunk << " at " << t;
      ASSERT_TRUE(at::equal(part.probes, whole.probes.slice(2, t, end))) << "chunk " << chunk << " at " << t;
    }
  }
}

TEST(Router, OnePassEqualsChunksEqualsTokenByToken) {
  expect_same_in_pieces({});
  RoutingConfig config;
  config.global_group = config.shared = true;
  expect_same_in_pieces(config);
  config = RoutingConfig::symmetric_defaults();
  config.groups_per_token = 2;
  expect_same_in_pieces(config);
}

TEST(Router, LaterTokensChangeNothing) {
  const Router router = random_router({}, {0}, 64, 2, 4);
  const at::Tensor h = at::randn({1, 300, 64});
  const Routes before = router.route(0, h, positions(1, 300));
  at::Tensor changed = h.clone();
  changed.slice(1, 100).normal_().mul_(100);
  const Routes after = router.route(0, changed, positions(1, 300));
  EXPECT_TRUE(at::equal(before.key_group.slice(2, 0, 100), after.key_group.slice(2, 0, 100)));
  EXPECT_TRUE(at::equal(before.probes.slice(2, 0, 100), after.probes.slice(2, 0, 100)));
  EXPECT_FALSE(at::equal(before.key_group, after.key_group));
}

TEST(Router, PaperRoutingReadsTheFutureAndSaysSo) {
  RoutingConfig config = RoutingConfig::symmetric_defaults();
  config.routing = RoutingMode::kPaper;
  const Router router = random_router(config, {0}, 64, 2, 4);
  EXPECT_FALSE(router.is_causal());
  const at::Tensor h = at::randn({1, 300, 64});
  const Routes before = router.route(0, h, positions(1, 300));
  at::Tensor changed = h.clone();
  changed.slice(1, 100).copy_(h.slice(1, 0, 1).expand({1, 200, 64}));
  const Routes after = router.route(0, changed, positions(1, 300));
  EXPECT_FALSE(at::equal(before.key_group.slice(2, 0, 100), after.key_group.slice(2, 0, 100)));
  // Its shares over the sequence are nearly even.
  const at::Tensor counts = at::bincount(before.key_group.slice(2, 4).select(1, 0).flatten().to(at::kLong), {}, 9);
  EXPECT_LT(counts.max().item<double>() / 296, 0.3);
}

TEST(Router, SymmetricProbesExactlyThoseThatShareAGroup) {
  RoutingConfig config = RoutingConfig::symmetric_defaults();
  config.groups = 6;
  config.groups_per_token = 2;
  config.sinks = 0;
  const Router router = random_router(config, {0}, 32, 2, 5);
  const LayerRouter& w = router.layers().at(0);
  const at::Tensor h = at::randn({1, 90, 32});
  const Routes routes = router.route(0, h, positions(1, 90));
  const at::Tensor scores =
      symmetric_scores(h, w.projection, w.centroids, config.tau) + w.potentials.unsqueeze(0).unsqueeze(2);
  const at::Tensor member = at::zeros_like(scores).scatter_(-1, std::get<1>(scores.topk(2)), 1.0);  // [1, Hg, T, K]
  const at::Tensor share = at::matmul(member, member.transpose(-1, -2)) > 0;
  const at::Tensor met = (routes.probes.unsqueeze(3) == routes.key_group.unsqueeze(2).unsqueeze(-1)).any(-1);
  EXPECT_TRUE(at::equal(met, share));
}

TEST(Router, SinksAndPaddingByPositionInTheDocument) {
  const Router router = random_router({}, {0}, 32, 2, 6);
  const at::Tensor position = at::tensor({-1, 0, 3, 4, 0, 9}, at::kInt).unsqueeze(0);
  const Routes routes = router.route(0, at::randn({1, 6, 32}), position);
  for (int64_t s = 0; s < 2; ++s) {
    const at::Tensor group = routes.key_group[0][s];
    EXPECT_EQ(group[0].item<int>(), -1);
    for (int64_t t : {1, 2, 4}) EXPECT_EQ(group[t].item<int>(), 0);
    for (int64_t t : {3, 5}) EXPECT_GT(group[t].item<int>(), 0);
    EXPECT_TRUE(routes.probes[0][s][0].eq(-1).all().item<bool>());
    EXPECT_EQ(routes.probes[0][s][1][0].item<int>(), 0);
  }
}

TEST(Router, TiesGoToTheLowerId) {
  Router tied = random_router({}, {0}, 32, 1, 7);
  auto layers = tied.layers();
  layers.at(0).codebook = layers.at(0).codebook.select(1, 0).unsqueeze(1).expand({1, 64, 17}).contiguous();
  layers.at(0).potentials = at::zeros({1, 64});
  const Routes routes = Router({}, layers).route(0, at::randn({1, 50, 32}), positions(1, 50) + 4);
  EXPECT_TRUE(routes.key_group.eq(1).all().item<bool>());
  EXPECT_TRUE(at::equal(routes.probes[0][0][20], at::arange(9, at::kInt)));
}

TEST(Router, ProbesAreAPrefixOfMoreProbes) {
  const Router router = random_router({}, {0}, 32, 2, 8);
  RoutingConfig config = router.config();
  config.groups_per_token = 3;
  const at::Tensor h = at::randn({1, 40, 32});
  const at::Tensor few = router.with_config(config).route(0, h, positions(1, 40)).probes;
  EXPECT_TRUE(at::equal(few, router.route(0, h, positions(1, 40)).probes.slice(-1, 0, 4)));
  config.groups_per_token = 64;
  const at::Tensor all = router.with_config(config).route(0, h, positions(1, 40)).probes;
  EXPECT_TRUE(at::equal(std::get<0>(all.sort(-1))[0][1][5], at::arange(65, at::kInt)));
}

TEST(Router, BadValuesAreNamed) {
  const Router router = random_router({}, {2}, 32, 2, 9);
  at::Tensor h = at::randn({1, 40, 32});
  EXPECT_THROW(router.route(0, h, positions(1, 40)), Error);
  EXPECT_THROW(router.route(2, h, positions(1, 39)), Error);
  EXPECT_THROW(router.route(2, at::randn({1, 40, 31}), positions(1, 40)), Error);
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    h[0][17][3] = value;
    EXPECT_THROW(router.route(2, h, positions(1, 40)), Error);
  }
  auto layers = router.layers();
  layers.at(2).codebook = layers.at(2).codebook.clone();
  layers.at(2).codebook[0][5][1] = std::numeric_limits<float>::quiet_NaN();
  try {
    Router({}, layers);
    FAIL() << "NaN accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "router: layer 2: codebook has values that are not finite");
  }
  layers.at(2).codebook = at::zeros({2, 64, 16});
  try {
    Router({}, layers);
    FAIL() << "shape accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "router: layer 2: codebook has the shape [2, 64, 16], expected [2, 64, 17]");
  }
}

TEST(Router, HalfPrecisionHiddenStatesRouteAsTheirFloatValues) {
  const Router router = random_router({}, {0}, 32, 2, 10);
  const at::Tensor h = at::randn({1, 100, 32}).to(at::kBFloat16);
  const Routes a = router.route(0, h, positions(1, 100));
  const Routes b = router.route(0, h.to(at::kFloat), positions(1, 100));
  EXPECT_TRUE(at::equal(a.key_group, b.key_group));
  EXPECT_TRUE(at::equal(a.probes, b.probes));
}

TEST(Router, TakesMilliseconds) {
  const Router router = random_router({}, {0}, 576, 3, 11);
  const at::Tensor h = at::randn({1, 2048, 576});
  const at::Tensor position = positions(1, 2048);
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    router.route(0, h, position);
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  RecordProperty("route_2048_ms", std::to_string(best));
  std::printf("routing 2048 tokens of 576 dimensions, 3 sets, 64 lists, 8 probes: %.2f ms\n", best);
}

}  // namespace
}  // namespace focus
