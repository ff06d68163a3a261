#pragma once

#include <cstdint>
#include <string>

namespace focus {

/// How hard routing chooses balance: `causal` uses the frozen potentials of the adapter; `paper` runs Sinkhorn over the
/// tokens of the sequence itself (it reads the future; for comparison only).
enum class RoutingMode { kCausal, kPaper };

/// The settings of group routing (docs/design.md, section 3), one to one with the flags of the command line.
struct RoutingConfig {
  int64_t groups = 64;           ///< --groups: K lists (symmetric: K groups).
  int64_t groups_per_token = 8;  ///< --groups-per-token: lists a query probes (symmetric: groups a token joins).
  int64_t window = 128;          ///< --window: i - j <= window is always allowed.
  int64_t sinks = 4;             ///< --sinks: first positions of a document that every query sees.
  int64_t group_dim = 16;        ///< --group-dim: dimensions of the index.
  double tau = 0.1;              ///< --tau: temperature of the index scores.
  int64_t sinkhorn_iters = 10;   ///< --sinkhorn-iters.
  bool shared = false;           ///< --shared: one set of lists a layer, else one a KV head.
  bool symmetric = false;        ///< --symmetric: the paper's form, the same groups on the query and the key side.
  bool global_group = false;     ///< --global-group: a learned entry whose keys every query sees.
  RoutingMode routing = RoutingMode::kCausal;  ///< --routing causal|paper.

  /// Defaults of the paper's form: K = 8, one group a token.
  static RoutingConfig symmetric_defaults();
  /// Entries of a codebook: the groups, and the global one in front if there is one.
  int64_t entries() const { return groups + (global_group ? 1 : 0); }
  /// Throws UsageError naming the flag, its value and what is accepted.
  void validate() const;
};

/// Largest --groups: ids are 0 (sinks) and 1 .. K, of which the attention op takes 4096.
inline constexpr int64_t kMaxGroups = 4095;

RoutingMode parse_routing_mode(const std::string& text);
std::string to_string(RoutingMode mode);

}  // namespace focus
