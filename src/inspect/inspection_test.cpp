#include "inspect/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "attention/routing/formulas.h"
#include "attention/routing/testing.h"
#include "base/error.h"
#include "inspect/report.h"

namespace focus {
namespace {

using testing_support::random_router;

constexpr int64_t kHidden = 24;

AttentionInput random_input(int64_t layer, int64_t tokens) {
  at::manual_seed(static_cast<uint64_t>(layer + 31 * tokens));
  AttentionInput input;
  input.layer = layer;
  input.hidden = at::randn({1, tokens, kHidden});
  input.q = at::randn({1, 4, tokens, 8});
  input.k = at::randn({1, 2, tokens, 8});
  input.v = at::randn({1, 2, tokens, 8});
  input.scale = 0.4;
  return input;
}

RoutingConfig small_config(bool symmetric) {
  RoutingConfig config;
  config.groups = symmetric ? 5 : 6;
  config.groups_per_token = 2;
  config.window = 4;
  config.sinks = 2;
  config.symmetric = symmetric;
  return config;
}

class Collector : public ::testing::TestWithParam<bool> {};

TEST_P(Collector, SeesWhatFocusAttentionDoes) {
  const auto router = std::make_shared<Router>(random_router(small_config(GetParam()), {0, 2}, kHidden, 2, 3));
  InspectAttention watched(router, {.query_rows = 7, .excerpt_tokens = 20, .lengths = {16, 32}, .seed = 5});
  FocusAttention plain(router);
  for (const int64_t tokens : {40, 17}) {
    for (const int64_t layer : {0, 1, 2}) {  // layer 1 attends densely
      const AttentionInput input = random_input(layer, tokens);
      EXPECT_TRUE(at::equal(watched.attend(input), plain.attend(input)));
    }
    watched.end_window(tokens);
  }
  EXPECT_EQ(watched.pairs().kept, plain.pairs().kept);
  const std::vector<LayerRecord> layers = watched.take_layers();
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[1].layer, 2);
  int64_t kept = 0, causal = 0;
  for (const LayerRecord& record : layers) {
    kept += record.pairs.kept;
    causal += record.pairs.causal;
    EXPECT_EQ(record.causal_by_length[0], 2 * 2 * 16 * 17 / 2);  // both windows, two sets
    EXPECT_EQ(record.causal_by_length[1], 2 * 32 * 33 / 2);      // the longer one alone
    EXPECT_EQ(record.mass.rows, 2 * 7 * 4);
    const Routes routes =
        router->route(record.layer, random_input(record.layer, 40).hidden, testing_support::positions(1, 40));
    for (int64_t s = 0; s < 2; ++s) {
      const auto& lists = record.lists[static_cast<size_t>(s)];
      const auto& shuffled = record.shuffled[static_cast<size_t>(s)];
      ASSERT_EQ(lists.size(), 57u);
      for (int64_t t = 0; t < 40; ++t) {
        EXPECT_EQ(lists[static_cast<size_t>(t)], t < 2 ? -1 : routes.key_group[0][s][t].item<int32_t>());
      }
      EXPECT_EQ(lists[41], -1);  // a sink of the second window
      EXPECT_NE(lists, shuffled);
      for (const auto& [begin, end] : {std::pair(0, 40), std::pair(40, 57)}) {
        EXPECT_TRUE(std::is_permutation(lists.begin() + begin, lists.begin() + end, shuffled.begin() + begin,
                                        shuffled.begin() + end));
      }
    }
    for (const FarPair& pair : record.far) {
      EXPECT_GT(pair.query - pair.key, 4);
      EXPECT_EQ(pair.query < 40, pair.key < 40);
      EXPECT_EQ(pair.list, record.lists[static_cast<size_t>(pair.set)][static_cast<size_t>(pair.key)]);
    }
    ASSERT_EQ(record.affinity.size(), record.far.size());
    ASSERT_EQ(record.excerpt.keys.size(), 2u);
    ASSERT_EQ(record.excerpt.keys[0].size(), 20u);
    EXPECT_EQ(record.excerpt.keys[0][0].size(), 1u);
    EXPECT_FLOAT_EQ(record.excerpt.keys[0][0][0].mass, 1);
  }
  const int64_t dense = 2 * (40 * 41 / 2 + 17 * 18 / 2);
  EXPECT_EQ(kept + dense, plain.pairs().kept);
  EXPECT_EQ(causal + dense, plain.pairs().causal);
}

INSTANTIATE_TEST_SUITE_P(Forms, Collector, ::testing::Values(false, true));

TEST(Collector, MassIsThatOfScaledHeads) {
  const auto router = std::make_shared<Router>(random_router(small_config(false), {0}, kHidden, 2, 3));
  const HeadScale scale{.score_factor = at::tensor({0.2, 3.0, 1.0, 0.5}, at::kFloat), .output_gain = at::ones({4})};
  const CollectorOptions options{.query_rows = 9, .excerpt_tokens = 20, .lengths = {}, .seed = 5};
  const auto record_of = [&](const AttentionInput& input, std::shared_ptr<const HeadScales> scales) {
    InspectAttention watched(router, options, std::move(scales));
    watched.attend(input);
    return watched.take_layers().front();
  };
  const AttentionInput input = random_input(0, 40);
  AttentionInput by_hand = input;
  by_hand.q = input.q * scale.score_factor.view({1, 4, 1, 1});
  const LayerRecord plain = record_of(input, nullptr), expected = record_of(by_hand, nullptr);
  const LayerRecord scaled = record_of(input, std::make_shared<const HeadScales>(HeadScales{{0, scale}}));
  EXPECT_EQ(scaled.mass.lists, expected.mass.lists);
  EXPECT_EQ(scaled.excerpt.keys[0][19][0].mass, expected.excerpt.keys[0][19][0].mass);
  EXPECT_NE(scaled.mass.lists, plain.mass.lists);
}

TEST(Collector, ConfidenceIsTheSoftmaxOfTheOwnList) {
  const RoutingConfig config = small_config(false);
  const auto router = std::make_shared<Router>(random_router(config, {0}, kHidden, 2, 9));
  InspectAttention watched(router, {.query_rows = 2, .lengths = {}});
  const AttentionInput input = random_input(0, 30);
  watched.attend(input);
  const LayerRecord record = watched.take_layers().front();
  const LayerRouter& weights = router->layers().at(0);
  const at::Tensor keys = key_features(input.hidden[0], weights.key_projection, weights.key_bias, config.tau);
  const at::Tensor p = at::softmax(key_list_scores(keys, weights.codebook, weights.potentials, config.tau), -1);
  const double expected =
      std::get<0>(p[1].max(-1)).slice(0, config.sinks).sum().item<double>();  // the best list is chosen
  EXPECT_NEAR(std::reduce(record.confidence[1].begin(), record.confidence[1].end()), expected, 1e-4);
  EXPECT_LT(std::reduce(record.shuffled_confidence[1].begin(), record.shuffled_confidence[1].end()), expected);
}

TEST(InspectedText, IsCutAtTheLastToken) {
  const Tokenizer tokenizer = Tokenizer::load(std::string(FOCUS_SOURCE_DIR) + "/data/models/stories260K");
  TokenTexts texts(tokenizer);
  const std::vector<Document> documents = {Document(25, 300), Document(3, 301), Document(1, 302), Document(40, 303)};
  const InspectedText text = inspected_text(documents, texts, {.context = 10, .max_tokens = 42}, 4);
  EXPECT_THAT(text.window_begin, ::testing::ElementsAre(0, 10, 20, 25, 28, 38, 42));
  EXPECT_EQ(text.documents, 3);
  EXPECT_EQ(text.classes.size(), text.ids.size());
  EXPECT_EQ(text.excerpt_window, 1);
  EXPECT_EQ(text.ids[27], 301);
  EXPECT_EQ(text.ids[28], 303);
  EXPECT_THROW(inspected_text({Document(5, 300)}, texts, {}, 4), Error);
}

TEST(Comparison, IsOneForTheSameLists) {
  Inspection a;
  LayerRecord record;
  record.layer = 3;
  record.lists = {{1, 1, 2, 2}, {2, 1, 2, 1}};
  a.layers.push_back(record);
  Inspection b = a;
  b.layers.front().lists[1] = {1, 1, 2, 2};
  record.layer = 4;
  b.layers.push_back(record);
  EXPECT_EQ(compare_runs(a, b), nlohmann::json::parse(R"([{"layer": 3, "agreement": 0.5}])"));
}

}  // namespace
}  // namespace focus
