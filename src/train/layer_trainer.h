#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/routing/config.h"
#include "attention/routing/router.h"
#include "train/distillation.h"
#include "train/optimizer.h"
#include "train/probe_budget.h"

namespace focus {

/// How the router of a layer is trained against the frozen layer (docs/design.md, section 3).
struct DistillationOptions {
  RoutingConfig routing;
  int64_t rows = 96;            ///< Sampled query rows an update.
  double far_fraction = 0.125;  ///< Share of far keys that the soft mask of stage `output` lets through.
  double sharpness = 3.0;  ///< Factor of the soft choices' logits in stage `lists`: keys and queries nearly decide.
  double learning_rate = 2e-3;  ///< Of both stages; the keys' bias takes 0.3 of it.
  int64_t warmup_updates = 8;
  double max_grad_norm = 1.0;
  LrScheduler scheduler = LrScheduler::kCosine;
  int64_t seed = 0;
};

/// What one update did.
struct UpdateResult {
  double loss = 0;       ///< Relative squared error of the block's output under the soft mask.
  double grad_norm = 0;  ///< Before clipping.
  int64_t kept = 0;    ///< Pairs that the hard mask keeps at the sampled rows, near ones included, over the head sets.
  int64_t causal = 0;  ///< Causal pairs at the sampled rows.
  double dominance = 0;  ///< Share of the window's keys in the largest list (stage `lists`; 0 in `output`).
};

/// Trains the router of one layer, update by update. Stage `output` fits the index: soft mask sigmoid(s_ij - theta_i)
/// on far pairs, theta_i the score that the best far_fraction of row i's far keys reach. Stage `lists` then fits the
/// codebook with the index frozen: a far pair has weight sum over lists of p_i(list) m_j(list), with m_j the softmax of
/// the key's list scores and p_i a sigmoid at the query's P-th best list. Both minimise the error of the attention
/// block's output. Everything random is drawn from (seed, layer, stage, update), so that a resumed run is the same run.
class LayerTrainer {
 public:
  LayerTrainer(int64_t layer, const DistillationOptions& options);

  /// Adds a window to the statistics that the start is made from.
  void observe(const DistillationLayer& window);
  /// Starts the index from the frozen projections (see svd_index), whitened by what was observed.
  void initialise();
  bool initialised() const { return router_.key_bias.defined(); }

  /// Update `update` of `total` of stage `output`.
  UpdateResult update_index(const DistillationLayer& window, int64_t update, int64_t total);

  /// Adds the window's key features to those that lists are built from and calibrated on.
  void collect(const at::Tensor& hidden);
  /// Codebook and potentials by balanced k-means on the collected features.
  void build_lists();
  bool has_lists() const { return router_.codebook.defined(); }

  /// Update `update` of `total` of stage `lists`.
  UpdateResult update_lists(const DistillationLayer& window, int64_t update, int64_t total);

  /// Potentials calibrated on hard assignments of the collected features. Returns the largest share of a list.
  double calibrate();

  /// Adds a window to the layer's probe curves: hard masks at sampled rows, `number` tells windows apart.
  void measure_probes(const DistillationLayer& window, int64_t number, const std::vector<int64_t>& grid);
  /// Means over the windows measured.
  ProbeCurves probe_curves() const;
  void set_probes(const std::vector<int64_t>& probes);

  /// The router as it stands, in the model's own coordinates, detached copies.
  LayerRouter router() const;

  /// All tensors that a resumed run needs, by name; load_state() takes them back.
  std::vector<std::pair<std::string, at::Tensor>> state() const;
  void load_state(const std::vector<std::pair<std::string, at::Tensor>>& state);

 private:
  /// Query rows of the window, `times` as many as an update takes.
  at::Tensor sample(const DistillationLayer& window, int64_t stream, int64_t update, int64_t times = 1) const;
  UpdateResult apply(const at::Tensor& loss, int64_t update, int64_t total);
  int64_t draw_probes(int64_t update) const;
  void start_stage(const std::vector<std::string>& names);

  /// W_q, W_k and u in the model's coordinates: the trained ones times Sigma^(-1/2).
  LayerRouter index() const;

  int64_t layer_;
  DistillationOptions options_;
  LayerRouter router_;    // The index in whitened coordinates.
  at::Tensor whitening_;  // Sigma^(-1/2), [d, d]
  // Between observe() and initialise(): the sum of h h^T, float64 [d, d], the tokens in it, and the last window.
  at::Tensor moment_;
  int64_t observed_ = 0;
  DistillationLayer start_;
  at::Tensor features_;  // [Hg, n, d_g + 1]
  ProbeCurves curves_;   // Sums over the windows measured.
  int64_t measured_ = 0;
  std::vector<std::string> trained_;
  std::unique_ptr<Adam> adam_;
};

}  // namespace focus
