#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/methods/focus_attention.h"
#include "attention/routing/config.h"
#include "data/token_windows.h"
#include "models/model.h"
#include "train/group_balance.h"

namespace focus {

/// How tokens of some windows spread over groups, each token in the one of its largest membership.
struct GroupFigures {
  double nats = 0;                   ///< Mean cross entropy of the next tokens.
  double dominance = 0;              ///< Share of the largest group, the largest over layers and list sets.
  double dominance_mean = 0;         ///< The largest over list sets, mean over layers.
  int64_t dead_groups = 0;           ///< Groups without a token, summed over layers and list sets.
  int64_t groups = 0;                ///< All groups of all layers and list sets.
  std::optional<double> stability;   ///< Share of tokens whose group is that of the measurement before.
  std::optional<double> pairs_kept;  ///< Of the hard mask.
};

/// What one of the router's ingredients, changed by training, does by itself (see GroupStudy::paths).
struct EscapePath {
  double distance = 0;        ///< From its value at the start, relative to that.
  double changed = 0;         ///< Share of tokens that are in another group than at the start.
  double dominance = 0;       ///< As in GroupFigures.
  double dominance_mean = 0;  ///< As in GroupFigures.
};

/// The three ways by which tokens can leave for one group, and all of them at once.
struct EscapePaths {
  EscapePath centroid_drift, representation_bypass, projection_bypass, together;
};

nlohmann::json to_json(const GroupFigures& figures);
nlohmann::json to_json(const EscapePaths& paths);

/// Groups [N, Hg, T] (int64) of N windows by hidden states h [N, T, d], projection W [Hg, d_g, d] and centroids C
/// [Hg, K, d_g]: argmax_k of (h W) C^T / tau, plus Sinkhorn's potentials of the window (kSinkhorn) or of all N windows
/// together (kPotentials: what the running mean would come to).
at::Tensor assign_groups(const at::Tensor& hidden, const at::Tensor& projection, const at::Tensor& centroids,
                         const RoutingConfig& routing, GroupNormaliser normaliser);

/// Watches the groups of a training run on windows of its own. Holds the hidden states of all layers at the start:
/// windows * layers * T * d numbers.
class GroupStudy {
 public:
  using Routers = std::map<int64_t, LayerRouter>;
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  /// `sharpness` is the soft gate's. At least one window.
  GroupStudy(const CausalLM& model, const RoutingConfig& routing, double sharpness, const GroupBalance& balance,
             std::vector<TrainWindows::Window> windows);

  /// Keeps the routers and what they do under the model's present weights as the start.
  void start(const Routers& routers);
  bool started() const { return !start_.empty(); }
  /// Under the soft gate with the model's present weights. `stability` is against the last call of this or of start().
  GroupFigures measure(const Routers& routers);
  /// The escape paths since the start, as counterfactuals. With C, W, h the centroids, projection and hidden states at
  /// the start, C', W', h' those now and a(C, W, h) the assignment (assign_groups):
  ///     A, centroid drift:         a(C', W,  h ) against a(C, W, h)
  ///     B, representation bypass:  a(C,  W,  h') against a(C, W, h)
  ///     C, projection bypass:      a(C,  W', h ) against a(C, W, h)
  ///     all together:              a(C', W', h') against a(C, W, h)
  /// `changed` and the dominances are those of the first of each pair; distances are |C'_k - C_k| over |C_k| (each a
  /// mean over groups), and Frobenius norms of the differences of h and W over those of h and W; means over layers.
  EscapePaths paths(const Routers& routers);

  /// The routers at the start and the last assignment: with them load_state() sets up the same start anew, provided
  /// that the model has the weights that it had then.
  NamedTensors state() const;
  void load_state(const NamedTensors& state);

 private:
  struct Layer {
    LayerRouter router;
    at::Tensor hidden;  // [N, T, d]
    at::Tensor last;    // int16 [N, Hg, T]
  };
  struct Pass {
    double nats = 0;
    std::map<int64_t, at::Tensor> hidden;  // [N, T, d]
    std::map<int64_t, at::Tensor> groups;  // int16 [N, Hg, T]
  };
  Pass pass(const Routers& routers) const;

  const CausalLM& model_;
  RoutingConfig routing_;
  double sharpness_;
  GroupBalance balance_;
  std::vector<TrainWindows::Window> windows_;
  std::map<int64_t, Layer> start_;
};

/// The same figures (but stability) of hard causal routing.
GroupFigures measure_routed(const CausalLM& model, FocusAttention& method,
                            const std::vector<TrainWindows::Window>& windows);

/// Mean cross entropy in nats of the windows' next tokens under a method; `after_each` is called after each window.
double window_nats(const CausalLM& model, AttentionMethod& method, const std::vector<TrainWindows::Window>& windows,
                   const std::function<void()>& after_each = {});

}  // namespace focus
