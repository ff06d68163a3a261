#include "train/group_study.h"

#include <gtest/gtest.h>

#include "attention/methods/full.h"
#include "base/error.h"
#include "train/lm_loss.h"
#include "train/toy_model_test.h"

namespace focus {
namespace {

using testing::ToyModel;
using testing::window_of;

/// Groups of a toy model's layer 0 that are known beforehand: channel 0 of all embeddings is 1, the projection keeps
/// channels 0 and 1, and the two centroids tell positive from negative channels 1.
struct Known {
  ToyModel model;
  at::Tensor embedding = model.parameters()[0].second;
  RoutingConfig routing = RoutingConfig::symmetric_defaults();
  GroupStudy::Routers routers;
  std::vector<TrainWindows::Window> windows = {window_of(1), window_of(2), window_of(3)};
  double positive = 0;  // Share of tokens in group 0.

  Known() {
    embedding.select(1, 0).fill_(1);
    embedding.select(1, 1).clamp_(-3, 3);
    routing.groups = routing.group_dim = 2;
    routing.window = 8;
    routing.shared = true;
    LayerRouter& router = routers[0];
    router.projection = at::zeros({1, 2, 16});
    router.projection[0][0][0] = 1;
    router.projection[0][1][1] = 1;
    router.centroids = at::tensor({0.0F, 1.0F, 0.0F, -1.0F}).view({1, 2, 2});
    router.potentials = at::zeros({1, 2});
    double tokens = 0;
    for (const auto& window : windows) {
      for (const int32_t id : window.ids) positive += embedding[id][1].item<double>() > 0 ? 1 : 0;
      tokens += static_cast<double>(window.ids.size());
    }
    positive /= tokens;
  }
  GroupStudy study(GroupNormaliser normaliser) const {
    GroupStudy made(model, routing, 5, {.normaliser = normaliser}, windows);
    made.start(routers);
    return made;
  }
  double larger() const { return std::max(positive, 1 - positive); }
};

void expect_untouched(const EscapePath& path, double dominance) {
  EXPECT_EQ(path.distance, 0);
  EXPECT_EQ(path.changed, 0);
  EXPECT_NEAR(path.dominance, dominance, 1e-9);
}

TEST(GroupStudy, CentroidDriftIsSeenAlone) {
  const Known known;
  ASSERT_GT(known.positive, 0.1);
  ASSERT_LT(known.positive, 0.9);
  GroupStudy study = known.study(GroupNormaliser::kSoftmax);
  GroupStudy::Routers drifted = known.routers;
  drifted[0].centroids = at::tensor({10.0F, 1.0F, 0.0F, -1.0F}).view({1, 2, 2});  // Group 0 takes all.
  const EscapePaths paths = study.paths(drifted);
  EXPECT_NEAR(paths.centroid_drift.changed, 1 - known.positive, 1e-9);
  EXPECT_EQ(paths.centroid_drift.dominance, 1);
  EXPECT_NEAR(paths.centroid_drift.distance, 5, 1e-6);  // (10 + 0) / (1 + 1)
  EXPECT_NEAR(paths.together.changed, 1 - known.positive, 1e-9);
  expect_untouched(paths.representation_bypass, known.larger());
  expect_untouched(paths.projection_bypass, known.larger());
}

TEST(GroupStudy, ProjectionBypassIsSeenAlone) {
  const Known known;
  GroupStudy study = known.study(GroupNormaliser::kSoftmax);
  GroupStudy::Routers turned = known.routers;
  turned[0].projection = known.routers.at(0).projection.clone();
  turned[0].projection[0][1][1] = -1;  // Positive and negative change places.
  const EscapePaths paths = study.paths(turned);
  EXPECT_EQ(paths.projection_bypass.changed, 1);
  EXPECT_NEAR(paths.projection_bypass.dominance, known.larger(), 1e-9);
  EXPECT_NEAR(paths.projection_bypass.distance, std::sqrt(2.0), 1e-6);  // 2 of |(1, 1)|
  expect_untouched(paths.centroid_drift, known.larger());
  expect_untouched(paths.representation_bypass, known.larger());
}

TEST(GroupStudy, RepresentationBypassIsSeenAlone) {
  const Known known;
  GroupStudy study = known.study(GroupNormaliser::kSoftmax);
  known.embedding.select(1, 1).abs_();  // The weights, not the router, send all tokens to group 0.
  const EscapePaths paths = study.paths(known.routers);
  EXPECT_NEAR(paths.representation_bypass.changed, 1 - known.positive, 1e-9);
  EXPECT_EQ(paths.representation_bypass.dominance, 1);
  EXPECT_GT(paths.representation_bypass.distance, 0.1);
  expect_untouched(paths.centroid_drift, known.larger());
  expect_untouched(paths.projection_bypass, known.larger());
}

TEST(GroupStudy, BalancedNormalisersAbsorbWhatPullsAllTokensAlike) {
  const Known known;
  for (const auto normaliser : {GroupNormaliser::kSinkhorn, GroupNormaliser::kPotentials}) {
    GroupStudy study = known.study(normaliser);
    GroupStudy::Routers drifted = known.routers;
    drifted[0].centroids = at::tensor({10.0F, 1.0F, 0.0F, -1.0F}).view({1, 2, 2});
    const EscapePath drift = study.paths(drifted).centroid_drift;
    EXPECT_LT(drift.changed, 0.02);  // Potentials start elsewhere and may end a little apart.
    EXPECT_LT(drift.dominance, 0.65);
  }
}

TEST(GroupStudy, MeasuresDominanceDeadGroupsAndStability) {
  const Known known;
  GroupStudy study = known.study(GroupNormaliser::kSoftmax);
  const GroupFigures same = study.measure(known.routers);
  EXPECT_NEAR(same.dominance, known.larger(), 1e-9);
  EXPECT_NEAR(same.dominance_mean, known.larger(), 1e-9);
  EXPECT_EQ(same.dead_groups, 0);
  EXPECT_EQ(same.groups, 2);
  EXPECT_EQ(same.stability, 1);
  EXPECT_GT(same.nats, 0);
  GroupStudy::Routers drifted = known.routers;
  drifted[0].centroids = at::tensor({10.0F, 1.0F, 0.0F, -1.0F}).view({1, 2, 2});
  const GroupFigures after = study.measure(drifted);
  EXPECT_EQ(after.dominance, 1);
  EXPECT_EQ(after.dead_groups, 1);
  EXPECT_NEAR(*after.stability, known.positive, 1e-9);
  EXPECT_EQ(study.measure(drifted).stability, 1);
  const nlohmann::json json = to_json(after);
  EXPECT_EQ(json["dead_groups"], 1);
  EXPECT_NEAR(json["perplexity"].get<double>(), std::exp(after.nats), 1e-9);
}

TEST(GroupStudy, StateSetsUpTheSameStart) {
  const Known known;
  GroupStudy study = known.study(GroupNormaliser::kSoftmax);
  GroupStudy::Routers drifted = known.routers;
  drifted[0].centroids = at::tensor({10.0F, 1.0F, 0.0F, -1.0F}).view({1, 2, 2});
  study.measure(drifted);
  GroupStudy again(known.model, known.routing, 5, {.normaliser = GroupNormaliser::kSoftmax}, known.windows);
  EXPECT_FALSE(again.started());
  EXPECT_THROW(again.measure(drifted), Error);
  again.load_state(study.state());
  EXPECT_EQ(to_json(again.paths(drifted)), to_json(study.paths(drifted)));
  EXPECT_EQ(again.measure(drifted).stability, 1);
  EXPECT_THROW(again.load_state({{"weights.0", at::zeros({1})}}), Error);
  GroupStudy other(known.model, known.routing, 5, {}, {window_of(1)});
  EXPECT_THROW(other.load_state(study.state()), Error);
  EXPECT_THROW(GroupStudy(known.model, known.routing, 5, {}, {}), Error);
}

TEST(GroupStudy, WindowNatsAreTheMeanOverPredictedTokens) {
  const ToyModel model;
  FullAttention full;
  const std::vector<TrainWindows::Window> windows = {window_of(1, 300), window_of(2, 40)};
  double sum = 0;
  for (const auto& window : windows) {
    const at::Tensor ids = at::tensor(window.ids, at::kLong).unsqueeze(0);
    const double predicted = static_cast<double>(window.ids.size()) - 1;
    sum += predicted * lm_loss(model, model.forward(ids, full, {}).squeeze(0), next_tokens(window)).nats;
  }
  EXPECT_NEAR(window_nats(model, full, windows), sum / (299 + 39), 1e-5);
}

TEST(GroupStudy, RoutedFiguresAreThoseOfHardGroups) {
  const Known known;
  RoutingConfig routing = known.routing;
  routing.sinks = 0;
  FocusAttention method(std::make_shared<const Router>(routing, known.routers));
  const GroupFigures figures = measure_routed(known.model, method, known.windows);
  EXPECT_NEAR(figures.dominance, known.larger(), 1e-9);
  EXPECT_NEAR(figures.dominance_mean, known.larger(), 1e-9);
  EXPECT_EQ(figures.groups, 2);
  EXPECT_EQ(figures.dead_groups, 0);
  EXPECT_GT(*figures.pairs_kept, 0.3);
  EXPECT_LT(*figures.pairs_kept, 1);
}

}  // namespace
}  // namespace focus
