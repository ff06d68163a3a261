#include "train/layer_trainer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <utility>

#include "attention/routing/formulas.h"
#include "attention/routing/sinkhorn.h"
#include "base/error.h"
#include "train/index_init.h"
#include "train/random_stream.h"

namespace focus {

namespace {

// Rows right behind the window see hardly any far key; their errors would say little.
constexpr int64_t kFewestFarKeys = 24;
constexpr int64_t kKmeansIterations = 12;
// Rows that probes are shared out by, in rows of an update: the rows at which a head looks something up are few.
constexpr int64_t kBudgetRows = 2;
// Step of the balance potentials against the log of the lists' soft shares, one step an update.
constexpr double kBalanceRate = 0.2;
// The bias says which keys everyone wants: learned too fast it takes the place of what the query asks for.
constexpr double kBiasRate = 0.3;
constexpr double kBeta1 = 0.9, kBeta2 = 0.98;

const std::vector<std::string> kIndexNames = {"query_projection", "key_projection", "key_bias"};
const std::vector<std::string> kListNames = {"codebook"};

at::Generator generator_for(int64_t seed, int64_t layer, int64_t stream, int64_t update) {
  return at::make_generator<at::CPUGeneratorImpl>(RandomStream({seed, layer, stream, update}).next());
}

void count_kept(const at::Tensor& far_kept, const SampledTeacher& teacher, UpdateResult& result) {
  const int64_t sets = far_kept.size(0);
  result.causal = teacher.causal_pairs() * sets;
  result.kept = teacher.near_pairs() * sets + far_kept.sum().item<int64_t>();
}

}  // namespace

LayerTrainer::LayerTrainer(int64_t layer, const DistillationOptions& options) : layer_(layer), options_(options) {}

void LayerTrainer::observe(const DistillationLayer& window) {
  const at::NoGradGuard no_grad;
  const std::pair<const char*, const at::Tensor&> parts[] = {{"hidden states", window.hidden},
                                                             {"queries", window.q},
                                                             {"keys", window.k},
                                                             {"values", window.v},
                                                             {"query weights", window.query_weight},
                                                             {"key weights", window.key_weight}};
  for (const auto& [name, tensor] : parts) {
    require(!tensor.defined() || at::isfinite(tensor).all().item<bool>(),
            "layer {}: the model's {} are not finite: it cannot be trained on (are its weights damaged?)", layer_,
            name);
  }
  const at::Tensor moment = at::matmul(window.hidden.t(), window.hidden).to(at::kDouble);
  moment_ = moment_.defined() ? moment_ + moment : moment;
  observed_ += window.hidden.size(0);
  start_ = window;
}

void LayerTrainer::initialise() {
  require(observed_ > 0, "layer {}: nothing was observed to start from", layer_);
  at::Generator generator = generator_for(options_.seed, layer_, kInitStream, 0);
  const int64_t kv_heads = start_.k.size(0), head_dim = start_.k.size(2), sets = options_.routing.shared ? 1 : kv_heads;
  const Whitening white = whitening(moment_ / static_cast<double>(observed_));
  whitening_ = white.inverse_root;
  std::tie(router_.query_projection, router_.key_projection) =
      svd_index(at::matmul(start_.query_weight, white.root), at::matmul(start_.key_weight, white.root), kv_heads,
                head_dim, sets, options_.routing.group_dim, generator);
  router_.key_bias = at::zeros({sets, start_.hidden.size(1)});
  moment_ = at::Tensor();
  start_ = {};
}

at::Tensor LayerTrainer::sample(const DistillationLayer& window, int64_t stream, int64_t update, int64_t times) const {
  at::Generator generator = generator_for(options_.seed, layer_, stream, update);
  const int64_t length = window.hidden.size(0);
  const int64_t first = options_.routing.window + options_.routing.sinks + kFewestFarKeys;
  require(length > first,
          "training windows of {} tokens hold no far pairs: with --window {} and --sinks {} the context must exceed {}",
          length, options_.routing.window, options_.routing.sinks, first);
  return sample_rows(first, length, times * options_.rows, generator);
}

int64_t LayerTrainer::draw_probes(int64_t update) const {
  const int64_t configured = options_.routing.groups_per_token;
  if (configured == options_.routing.groups) return configured;
  const int64_t halves = RandomStream({options_.seed, layer_, kProbesStream, update}).between(1, 3);
  return std::clamp<int64_t>(configured * halves / 2, 1, options_.routing.groups);
}

void LayerTrainer::start_stage(const std::vector<std::string>& names) {
  if (adam_ && trained_ == names) return;
  for (const std::string& name : trained_) router_.tensor(name).set_requires_grad(false);
  std::vector<AdamParameter> parameters;
  for (const std::string& name : names) {
    at::Tensor& tensor = router_.tensor(name);
    tensor = tensor.detach().clone().set_requires_grad(true);
    parameters.push_back({name, tensor, name == "key_bias" ? kBiasRate : 1.0});
  }
  trained_ = names;
  adam_ = std::make_unique<Adam>(std::move(parameters), kBeta1, kBeta2);
}

LayerRouter LayerTrainer::index() const {
  LayerRouter own;
  own.query_projection = at::matmul(router_.query_projection, whitening_);
  own.key_projection = at::matmul(router_.key_projection, whitening_);
  own.key_bias = at::matmul(router_.key_bias, whitening_);
  return own;
}

LayerRouter LayerTrainer::router() const {
  const at::NoGradGuard no_grad;
  LayerRouter router = index();
  if (has_lists()) {
    router.codebook = router_.codebook.detach().clone();
    router.potentials = router_.potentials.clone();
    router.probe_exponent =
        router_.probe_exponent.defined() ? router_.probe_exponent.clone() : at::ones({router.codebook.size(0)});
  }
  return router;
}

UpdateResult LayerTrainer::apply(const at::Tensor& loss, int64_t update, int64_t total) {
  UpdateResult result;
  result.loss = loss.item<double>();
  require(std::isfinite(result.loss), "layer {}: the loss is not finite at update {}; a lower --learning-rate may help",
          layer_, update);
  loss.backward();
  const double rate = options_.learning_rate * lr_factor(options_.scheduler, update, total, options_.warmup_updates);
  result.grad_norm = adam_->step(rate, options_.max_grad_norm);
  require(std::isfinite(result.grad_norm), "layer {}: the gradient is not finite at update {}", layer_, update);
  return result;
}

UpdateResult LayerTrainer::update_index(const DistillationLayer& window, int64_t update, int64_t total) {
  const at::AutoGradMode with_grad(true);
  start_stage(kIndexNames);
  const double tau = options_.routing.tau;
  const SampledTeacher teacher(window, sample(window, kIndexStream, update), options_.routing.window,
                               options_.routing.sinks);
  const LayerRouter own = index();
  const at::Tensor queries = query_features(window.hidden.index_select(0, teacher.rows()), own.query_projection);
  const at::Tensor scores =
      index_scores(queries, key_features(window.hidden, own.key_projection, own.key_bias, tau), tau);
  const at::Tensor threshold = far_threshold(scores.detach(), teacher.far(), options_.far_fraction);
  UpdateResult result = apply(teacher.output_error(at::sigmoid(scores - threshold)), update, total);
  count_kept((scores.detach() >= threshold) & teacher.far(), teacher, result);
  return result;
}

void LayerTrainer::collect(const at::Tensor& hidden) {
  const at::NoGradGuard no_grad;
  const LayerRouter own = index();
  const at::Tensor features = key_features(hidden, own.key_projection, own.key_bias, options_.routing.tau).contiguous();
  features_ = features_.defined() ? at::cat({features_, features}, 1) : features;
}

void LayerTrainer::build_lists() {
  const at::NoGradGuard no_grad;
  const RoutingConfig& routing = options_.routing;
  Clusters clusters = balanced_kmeans(features_, routing.entries(), kKmeansIterations, routing.tau,
                                      static_cast<uint64_t>(options_.seed + layer_));
  if (routing.global_group) {
    // The entry whose keys are wanted most, whatever the query, becomes the global one: entry 0.
    const at::Tensor wanted = clusters.centers.select(-1, routing.group_dim).argmax(-1, /*keepdim=*/true);  // [Hg, 1]
    const at::Tensor entries = at::arange(routing.entries(), wanted.options()).unsqueeze(0);
    const at::Tensor order = at::where(entries == 0, wanted, at::where(entries == wanted, 0, entries));
    clusters.centers = clusters.centers.gather(1, order.unsqueeze(-1).expand_as(clusters.centers));
    clusters.potentials = clusters.potentials.gather(1, order);
  }
  router_.codebook = clusters.centers;
  router_.potentials = clusters.potentials;
}

UpdateResult LayerTrainer::update_lists(const DistillationLayer& window, int64_t update, int64_t total) {
  const at::AutoGradMode with_grad(true);
  start_stage(kListNames);
  const RoutingConfig& routing = options_.routing;
  const int64_t global = routing.global_group ? 1 : 0, entries = routing.entries();
  const SampledTeacher teacher(window, sample(window, kListsStream, update), routing.window, routing.sinks);
  at::Tensor queries, keys;
  {
    const at::NoGradGuard no_grad;
    const LayerRouter own = index();
    queries = query_features(window.hidden.index_select(0, teacher.rows()), own.query_projection);
    keys = key_features(window.hidden, own.key_projection, own.key_bias, routing.tau);
  }
  const at::Tensor key_scores = key_list_scores(keys, router_.codebook, router_.potentials, routing.tau);
  const at::Tensor membership = (key_scores * options_.sharpness).softmax(-1);  // [Hg, T, E]
  // The global entry is probed by every query; the groups compete.
  const at::Tensor all_probes = probe_scores(queries, router_.codebook, routing.tau);  // [Hg, R, E]
  const at::Tensor probe = all_probes.narrow(-1, global, routing.groups);
  const int64_t probes = draw_probes(update);
  const at::Tensor top = std::get<0>(probe.detach().topk(std::min(probes + 1, routing.groups), -1));
  // Half way between the P-th best list and the next, there the sigmoid is one half; all lists probed: everything
  // passes.
  const at::Tensor threshold = probes < routing.groups
                                   ? (top.narrow(-1, probes - 1, 1) + top.narrow(-1, probes, 1)) * 0.5
                                   : top.narrow(-1, probes - 1, 1) - 10.0;
  at::Tensor probed = at::sigmoid((probe - threshold) * options_.sharpness);
  if (global > 0) probed = at::cat({at::ones_like(probed.narrow(-1, 0, 1)), probed}, -1);
  UpdateResult result = apply(teacher.output_error(at::matmul(probed, membership.transpose(-2, -1))), update, total);

  const at::NoGradGuard no_grad;
  // Potentials follow the lists' soft shares, as a Sinkhorn column step over the batch would.
  const at::Tensor share = membership.mean(-2) * static_cast<double>(entries);  // [Hg, E], 1 is balanced
  router_.potentials = router_.potentials - kBalanceRate * (share + 1e-3).log();
  router_.potentials = router_.potentials - router_.potentials.mean(-1, /*keepdim=*/true);
  const at::Tensor list = key_scores.argmax(-1);  // [Hg, T]
  const at::Tensor on = probe > threshold;        // [Hg, R, K]
  const at::Tensor padded = global > 0 ? at::cat({at::ones_like(on.narrow(-1, 0, 1)), on}, -1) : on;
  const at::Tensor kept = padded.gather(-1, list.unsqueeze(1).expand({-1, padded.size(1), -1}));  // [Hg, R, T]
  count_kept(kept & teacher.far(), teacher, result);
  result.dominance = at::one_hot(list, entries).to(at::kDouble).mean(-2).max().item<double>();
  return result;
}

double LayerTrainer::calibrate() {
  const at::NoGradGuard no_grad;
  const at::Tensor none = at::zeros_like(router_.potentials);
  const at::Tensor scores = key_list_scores(features_, router_.codebook.detach(), none, options_.routing.tau);
  const Calibration calibrated = calibrate_potentials(scores, router_.potentials);
  router_.potentials = calibrated.potentials;
  return calibrated.largest_share.max().item<double>();
}

void LayerTrainer::measure_probes(const DistillationLayer& window, int64_t number, const std::vector<int64_t>& grid) {
  const at::NoGradGuard no_grad;
  const RoutingConfig& routing = options_.routing;
  const int64_t global = routing.global_group ? 1 : 0;
  const SampledTeacher teacher(window, sample(window, kBudgetStream, number, kBudgetRows), routing.window,
                               routing.sinks);
  const LayerRouter own = index();
  const at::Tensor queries = query_features(window.hidden.index_select(0, teacher.rows()), own.query_projection);
  const at::Tensor keys = key_features(window.hidden, own.key_projection, own.key_bias, routing.tau);
  const at::Tensor codebook = router_.codebook.detach();
  const at::Tensor list = key_list_scores(keys, codebook, router_.potentials, routing.tau).argmax(-1);  // [Hg, T]
  // Rank of each list among a query's, and of each pair: that of the key's list. The global entry comes first always.
  const at::Tensor probe = probe_scores(queries, codebook, routing.tau).narrow(-1, global, routing.groups);
  at::Tensor rank = probe.argsort(-1, /*descending=*/true).argsort(-1, /*descending=*/false);  // [Hg, R, K]
  if (global > 0) rank = at::cat({at::full_like(rank.narrow(-1, 0, 1), -1), rank}, -1);
  const at::Tensor pair_rank = rank.gather(-1, list.unsqueeze(1).expand({-1, rank.size(1), -1}));  // [Hg, R, T]
  // Pairs that are kept in any case get -1. Ranks are small: 16 bits are read faster, many times over.
  const at::Tensor ranks = at::where(teacher.far(), pair_rank, -1).to(at::kShort);
  const int64_t sets = ranks.size(0);
  std::vector<at::Tensor> counts;  // [Hg][1 + K]: pairs of each rank, from -1 on
  for (int64_t set = 0; set < sets; ++set) {
    counts.push_back(at::bincount((ranks[set] + 1).flatten(), {}, routing.groups + 1));
  }
  const at::Tensor pairs = at::stack(counts).to(at::kDouble);
  const at::Tensor far = teacher.far().sum().to(at::kDouble);
  std::vector<at::Tensor> error, kept;
  for (const int64_t probes : grid) {
    error.push_back(teacher.head_errors(ranks >= probes).view({sets, -1}).sum(-1).to(at::kDouble));
    kept.push_back(1.0 - pairs.narrow(-1, 1 + probes, routing.groups - probes).sum(-1) / far.clamp_min(1.0));
  }
  const ProbeCurves curves{.error = at::stack(error, -1), .kept = at::stack(kept, -1)};
  curves_.error = measured_ > 0 ? curves_.error + curves.error : curves.error;
  curves_.kept = measured_ > 0 ? curves_.kept + curves.kept : curves.kept;
  ++measured_;
}

ProbeCurves LayerTrainer::probe_curves() const {
  require(measured_ > 0, "layer {}: no window was measured", layer_);
  const auto n = static_cast<double>(measured_);
  return {.error = curves_.error / n, .kept = curves_.kept / n};
}

void LayerTrainer::set_probes(const std::vector<int64_t>& probes) {
  router_.probe_exponent = at::empty({std::ssize(probes)});
  for (int64_t set = 0; set < std::ssize(probes); ++set) {
    router_.probe_exponent[set] =
        probe_exponent(probes[set], options_.routing.groups_per_token, options_.routing.groups);
  }
}

std::vector<std::pair<std::string, at::Tensor>> LayerTrainer::state() const {
  std::vector<std::pair<std::string, at::Tensor>> saved;
  for (const auto& name : {"query_projection", "key_projection", "key_bias", "codebook", "potentials"}) {
    if (router_.tensor(name).defined()) saved.emplace_back(name, router_.tensor(name).detach());
  }
  if (whitening_.defined()) saved.emplace_back("whitening", whitening_);
  if (features_.defined()) saved.emplace_back("features", features_);
  if (adam_) {
    for (const auto& [name, tensor] : adam_->state()) saved.emplace_back("adam." + name, tensor);
  }
  return saved;
}

void LayerTrainer::load_state(const std::vector<std::pair<std::string, at::Tensor>>& state) {
  std::vector<std::pair<std::string, at::Tensor>> moments;
  for (const auto& [name, tensor] : state) {
    if (name == "features") {
      features_ = tensor.clone();
    } else if (name == "whitening") {
      whitening_ = tensor.clone();
    } else if (name.starts_with("adam.")) {
      moments.emplace_back(name.substr(5), tensor);
    } else {
      router_.tensor(name) = tensor.clone();
    }
  }
  adam_.reset();
  trained_.clear();
  if (moments.empty()) return;
  start_stage(moments.front().first.starts_with("codebook") ? kListNames : kIndexNames);
  adam_->load_state(moments);
}

}  // namespace focus
