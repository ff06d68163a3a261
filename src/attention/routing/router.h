#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/routing/config.h"
#include "attention/routing/symmetric.h"

namespace focus {

/// The routing weights of one layer, float32. Hg list sets: the KV heads, or 1 when shared; E = K entries, with a
/// global group K + 1, the global entry first.
struct LayerRouter {
  at::Tensor query_projection;  ///< W_q [Hg, d_g, d]
  at::Tensor key_projection;    ///< W_k [Hg, d_g, d]
  at::Tensor key_bias;          ///< u [Hg, d]
  at::Tensor codebook;          ///< C [Hg, E, d_g + 1]
  at::Tensor potentials;        ///< b [Hg, E] (symmetric: [Hg, K])
  at::Tensor probe_exponent;    ///< e [Hg], positive: how the probes of each set follow P (see probes_of_set)
  at::Tensor projection;        ///< symmetric only: W_g [Hg, d_g, d]
  at::Tensor centroids;         ///< symmetric only: C [Hg, K, d_g]

  /// The tensors that a layer has under a configuration: names (as in adapter files) and shapes.
  static std::vector<std::pair<std::string, std::vector<int64_t>>> layout(const RoutingConfig& config,
                                                                          int64_t hidden_size, int64_t head_sets);
  /// The tensor of that name; throws Error if there is no such name.
  at::Tensor& tensor(const std::string& name);
  const at::Tensor& tensor(const std::string& name) const;
};

/// Lists that a query of a head set probes when --groups-per-token is P: round(K (P / K)^e), between 1 and K. With e =
/// 1 it is P; e < 1 gives a set more probes, e > 1 fewer; with P = K every set probes all lists.
int64_t probes_of_set(double exponent, int64_t groups_per_token, int64_t groups);

/// Where the tokens went. Ids: 0 is the sink list (with a global group also its keys), 1 .. K the groups (symmetric:
/// the membership patterns), -1 none.
struct Routes {
  at::Tensor key_group;  ///< int32 [B, Hg, T]
  /// int32 [B, Hg, T, 1 + P], P the most probes of a set of this layer: slot 0 is always list 0, then the best first;
  /// -1 beyond the probes of the set.
  at::Tensor probes;
};

/// The learned routing of a model: which list each token's key joins and which lists its query probes. Immutable.
class Router {
 public:
  /// Layers by number; layers without an entry attend densely. Throws UsageError for a bad configuration, Error naming
  /// the layer and tensor for a wrong shape, for dtypes other than float32 and for values that are not finite.
  Router(const RoutingConfig& config, std::map<int64_t, LayerRouter> layers);

  const RoutingConfig& config() const { return config_; }
  const std::map<int64_t, LayerRouter>& layers() const { return layers_; }
  bool has_layer(int64_t layer) const { return layers_.count(layer) != 0; }
  int64_t hidden_size() const { return hidden_size_; }
  int64_t head_sets() const { return head_sets_; }
  /// Number of lists beside list 0: K, or the membership patterns.
  int64_t lists() const { return patterns_ ? patterns_->patterns() : config_.groups; }
  /// Content lists that a query of each head set of a layer probes, [Hg].
  const std::vector<int64_t>& probes(int64_t layer) const;
  /// The membership patterns of the symmetric form, else null.
  const PatternTable* patterns() const { return patterns_.get(); }
  /// False when routing reads other tokens of the sequence (--routing paper).
  bool is_causal() const { return config_.routing == RoutingMode::kCausal; }

  /// The same weights with other settings at inference (probes, window, sinks, routing mode).
  Router with_config(const RoutingConfig& config) const { return Router(config, layers_); }

  /// Routes T tokens: hidden [B, T, d] of any floating dtype, position_in_document int32 or int64 [B, T] (negative:
  /// padding, in no list and without probes). With causal routing a token's row depends on its own hidden state and
  /// position only, bit for bit, whatever comes along in the same call. A key joins the list with the largest [k_hat,
  /// tau * u.h].C_e / tau + b_e, a query probes the probes(layer) largest [q_hat, 1].C_e; ties go to the lower id;
  /// positions below `sinks` go to list 0. Throws Error for hidden states that are not finite and for shapes that do
  /// not fit.
  Routes route(int64_t layer, const at::Tensor& hidden, const at::Tensor& position_in_document) const;

 private:
  struct Plan;
  struct Block;
  void route_lists(const Plan& plan, const Block& block) const;
  void route_patterns(const Plan& plan, const Block& block) const;

  RoutingConfig config_;
  std::map<int64_t, LayerRouter> layers_;
  int64_t hidden_size_ = 0;
  int64_t head_sets_ = 0;
  std::shared_ptr<const PatternTable> patterns_;
  std::map<int64_t, std::shared_ptr<const Plan>> plans_;
};

}  // namespace focus
