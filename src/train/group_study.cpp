#include "train/group_study.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "attention/routing/formulas.h"
#include "attention/routing/sinkhorn.h"
#include "base/error.h"
#include "train/lm_loss.h"
#include "train/soft_gate_attention.h"
#include "train/window_pass.h"

namespace focus {

namespace {

constexpr const char* kTensors[] = {"projection", "centroids", "potentials"};

/// Largest share and empty groups of one layer's assignment [N, Hg, T].
struct Spread {
  double largest = 0;
  int64_t dead = 0;
};

Spread spread_of(const at::Tensor& groups, int64_t count) {
  Spread spread;
  for (int64_t set = 0; set < groups.size(1); ++set) {
    const at::Tensor counts = groups.select(1, set).flatten().to(at::kLong).bincount({}, count);
    spread.largest =
        std::max(spread.largest, counts.max().item<double>() / static_cast<double>(counts.sum().item<int64_t>()));
    spread.dead += counts.eq(0).sum().item<int64_t>();
  }
  return spread;
}

double changed_share(const at::Tensor& before, const at::Tensor& after) {
  return before.ne(after).to(at::kDouble).mean().item<double>();
}

double relative(const at::Tensor& now, const at::Tensor& start) {
  return ((now - start).norm() / start.norm().clamp_min(1e-12)).item<double>();
}

double centroid_distance(const at::Tensor& now, const at::Tensor& start) {
  const auto norms = [](const at::Tensor& c) { return c.norm(2, at::IntArrayRef{-1}).mean(); };
  return (norms(now - start) / norms(start).clamp_min(1e-12)).item<double>();
}

/// Adds a layer's counterfactual; the sums become means by finish().
void add(EscapePath& path, const at::Tensor& start, const at::Tensor& groups, int64_t count, double distance) {
  const Spread spread = spread_of(groups, count);
  path.distance += distance;
  path.changed += changed_share(start, groups);
  path.dominance = std::max(path.dominance, spread.largest);
  path.dominance_mean += spread.largest;
}

void finish(EscapePath& path, double layers) {
  path.distance /= layers;
  path.changed /= layers;
  path.dominance_mean /= layers;
}

nlohmann::json to_json(const EscapePath& path) {
  return {{"distance", path.distance},
          {"changed", path.changed},
          {"dominance", path.dominance},
          {"dominance_mean", path.dominance_mean}};
}

LayerRouter copy_of(const LayerRouter& router) {
  LayerRouter copy;
  for (const char* name : kTensors) copy.tensor(name) = router.tensor(name).detach().clone();
  return copy;
}

double predicted_nats(const CausalLM& model, const at::Tensor& hidden, const at::Tensor& targets) {
  constexpr int64_t kRows = 256;
  double sum = 0;
  for (int64_t begin = 0; begin < hidden.size(0); begin += kRows) {
    const int64_t rows = std::min(kRows, hidden.size(0) - begin);
    const at::Tensor logits = model.logits(hidden.narrow(0, begin, rows)).to(at::kFloat);
    sum += at::cross_entropy_loss(logits, targets.narrow(0, begin, rows), {}, at::Reduction::Sum, -1).item<double>();
  }
  return sum;
}

}  // namespace

nlohmann::json to_json(const GroupFigures& figures) {
  nlohmann::json json = {{"eval_loss", figures.nats},          {"perplexity", std::exp(figures.nats)},
                         {"dominance", figures.dominance},     {"dominance_mean", figures.dominance_mean},
                         {"dead_groups", figures.dead_groups}, {"groups", figures.groups}};
  if (figures.stability) json["stability"] = *figures.stability;
  if (figures.pairs_kept) json["pairs_kept"] = *figures.pairs_kept;
  return json;
}

nlohmann::json to_json(const EscapePaths& paths) {
  return {{"centroid_drift", to_json(paths.centroid_drift)},
          {"representation_bypass", to_json(paths.representation_bypass)},
          {"projection_bypass", to_json(paths.projection_bypass)},
          {"together", to_json(paths.together)}};
}

at::Tensor assign_groups(const at::Tensor& hidden, const at::Tensor& projection, const at::Tensor& centroids,
                         const RoutingConfig& routing, GroupNormaliser normaliser) {
  const at::NoGradGuard no_grad;
  at::Tensor scores = symmetric_scores(hidden, projection, centroids, routing.tau);  // [N, Hg, T, K]
  if (normaliser == GroupNormaliser::kSinkhorn) {
    scores = scores + sinkhorn_potentials(scores.flatten(0, 1), routing.sinkhorn_iters)
                          .view({scores.size(0), scores.size(1), 1, scores.size(3)});
  } else if (normaliser == GroupNormaliser::kPotentials) {
    const at::Tensor pooled = scores.transpose(0, 1).flatten(1, 2);  // [Hg, N * T, K]
    scores = scores + sinkhorn_potentials(pooled, routing.sinkhorn_iters).unsqueeze(1);
  }
  return scores.argmax(-1);
}

double window_nats(const CausalLM& model, AttentionMethod& method, const std::vector<TrainWindows::Window>& windows,
                   const std::function<void()>& after_each) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  int64_t count = 0;
  for (const TrainWindows::Window& window : windows) {
    const at::Tensor targets = next_tokens(window);
    sum += predicted_nats(model, model.forward(ids_of(window), method, forward_options(window)).squeeze(0), targets);
    count += targets.ge(0).sum().item<int64_t>();
    if (after_each) after_each();
  }
  require(count > 0, "no token is predicted in the windows of the evaluation");
  return sum / static_cast<double>(count);
}

GroupFigures measure_routed(const CausalLM& model, FocusAttention& method,
                            const std::vector<TrainWindows::Window>& windows) {
  method.reset_dominance();
  method.reset_pairs();
  GroupFigures figures;
  figures.nats = window_nats(model, method, windows);
  const Dominance spread = method.dominance();
  for (const auto& [layer, share] : spread.largest_share) {
    figures.dominance_mean += share / static_cast<double>(spread.largest_share.size());
  }
  for (const auto& [layer, unused] : spread.unused_lists) figures.dead_groups += unused;
  const Router& router = method.router();
  figures.dominance = spread.largest();
  figures.groups = std::ssize(router.layers()) * router.head_sets() * router.config().groups;
  const PairCount pairs = method.pairs();
  figures.pairs_kept = static_cast<double>(pairs.kept) / static_cast<double>(pairs.causal);
  return figures;
}

GroupStudy::GroupStudy(const CausalLM& model, const RoutingConfig& routing, double sharpness,
                       const GroupBalance& balance, std::vector<TrainWindows::Window> windows)
    : model_(model), routing_(routing), sharpness_(sharpness), balance_(balance), windows_(std::move(windows)) {
  require(!windows_.empty(), "a study of groups needs at least one window");
}

GroupStudy::Pass GroupStudy::pass(const Routers& routers) const {
  const at::NoGradGuard no_grad;
  SoftGateAttention method(routing_, sharpness_, routers, balance_);
  Pass result;
  std::map<int64_t, std::vector<at::Tensor>> hidden, groups;
  result.nats = window_nats(model_, method, windows_, [&] {
    for (const auto& [layer, memberships] : method.memberships()) {
      groups[layer].push_back(memberships[0].to(at::kCPU).argmax(-1).to(at::kShort));
      hidden[layer].push_back(method.hidden().at(layer)[0].to(at::kCPU, at::kFloat));
    }
  });
  for (const auto& [layer, parts] : groups) {
    result.groups[layer] = at::stack(parts);
    result.hidden[layer] = at::stack(hidden.at(layer));
  }
  return result;
}

void GroupStudy::start(const Routers& routers) {
  const Pass now = pass(routers);
  start_.clear();
  for (const auto& [layer, router] : routers) {
    start_[layer] = {copy_of(router), now.hidden.at(layer), now.groups.at(layer)};
  }
}

GroupFigures GroupStudy::measure(const Routers& routers) {
  require(started(), "a study of groups measures before it has started");
  const Pass now = pass(routers);
  GroupFigures figures;
  figures.nats = now.nats;
  double unchanged = 0;
  for (auto& [layer, start] : start_) {
    const at::Tensor& groups = now.groups.at(layer);
    const Spread spread = spread_of(groups, routing_.groups);
    figures.dominance = std::max(figures.dominance, spread.largest);
    figures.dominance_mean += spread.largest / static_cast<double>(start_.size());
    figures.dead_groups += spread.dead;
    figures.groups += groups.size(1) * routing_.groups;
    unchanged += (1 - changed_share(start.last, groups)) / static_cast<double>(start_.size());
    start.last = groups;
  }
  figures.stability = unchanged;
  return figures;
}

EscapePaths GroupStudy::paths(const Routers& routers) {
  require(started(), "a study of groups measures before it has started");
  const Pass now = pass(routers);
  EscapePaths result;
  for (const auto& [layer, start] : start_) {
    const LayerRouter &then = start.router, &trained = routers.at(layer);
    const at::Tensor &hidden = now.hidden.at(layer), projection = trained.projection.detach(),
                     centroids = trained.centroids.detach();
    const auto assign = [&](const at::Tensor& c, const at::Tensor& w, const at::Tensor& h) {
      return assign_groups(h, w, c, routing_, balance_.normaliser);
    };
    const at::Tensor before = assign(then.centroids, then.projection, start.hidden);
    const double moved_c = centroid_distance(centroids, then.centroids),
                 moved_w = relative(projection, then.projection), moved_h = relative(hidden, start.hidden);
    const int64_t k = routing_.groups;
    add(result.centroid_drift, before, assign(centroids, then.projection, start.hidden), k, moved_c);
    add(result.representation_bypass, before, assign(then.centroids, then.projection, hidden), k, moved_h);
    add(result.projection_bypass, before, assign(then.centroids, projection, start.hidden), k, moved_w);
    add(result.together, before, assign(centroids, projection, hidden), k, moved_c + moved_w + moved_h);
  }
  const auto layers = static_cast<double>(start_.size());
  for (EscapePath* path :
       {&result.centroid_drift, &result.representation_bypass, &result.projection_bypass, &result.together}) {
    finish(*path, layers);
  }
  return result;
}

GroupStudy::NamedTensors GroupStudy::state() const {
  NamedTensors saved;
  for (const auto& [layer, start] : start_) {
    for (const char* name : kTensors) {
      saved.emplace_back(fmt::format("start.{}.{}", layer, name), start.router.tensor(name));
    }
    saved.emplace_back(fmt::format("last.{}", layer), start.last.to(at::kInt));
  }
  return saved;
}

void GroupStudy::load_state(const NamedTensors& state) {
  Routers routers;
  std::map<int64_t, at::Tensor> last;
  for (const auto& [name, tensor] : state) {
    const std::string prefix = name.substr(0, name.find('.') + 1);
    int64_t layer = -1;
    const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
    require(error == std::errc() && (prefix == "start." || prefix == "last."),
            "the checkpoint's '{}' belongs to no study of groups", name);
    if (prefix == "last.") {
      last[layer] = tensor.to(at::kShort);
    } else {
      routers[layer].tensor(std::string(end + 1)) = tensor.clone();
    }
  }
  start_.clear();
  if (routers.empty()) return;
  start(routers);
  for (auto& [layer, start] : start_) {
    const auto found = last.find(layer);
    require(found != last.end() && found->second.sizes() == start.last.sizes(),
            "the checkpoint has no assignment of layer {} that fits the windows of --eval-data", layer);
    start.last = found->second;
  }
}

}  // namespace focus
