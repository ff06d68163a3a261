#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"

namespace focus {

/// Parameters of the comparison methods of --method (docs/methods.md), one to one with their flags.
struct BaselineOptions {
  int64_t dilation = 1;                  ///< longformer: distance between the keys of the window.
  std::optional<int64_t> dilated_heads;  ///< longformer: the first KV heads, which alone are dilated. Absent: all.
  int64_t global_every = 0;              ///< longformer: every N-th token is global, 0 for none.
  int64_t block_size = 64;               ///< bigbird, moba, nsa-blocks: tokens a block.
  int64_t random_blocks = 3;             ///< bigbird: key blocks drawn for a query block.
  int64_t top_blocks = 3;                ///< moba, nsa-blocks: key blocks that a query chooses.
  int64_t top_keys = 64;                 ///< oracle, sparq: far keys that a query keeps.
  std::optional<double> top_mass;        ///< oracle: share of the attention that is kept, in place of top_keys.
  int64_t query_components = 16;         ///< sparq: components of a query that score the keys (r).
  bool mean_reallocation = true;         ///< sparq: the mean value stands in for the keys that were left out.
  int64_t hash_bits = 10;                ///< magicpig: bits a hash (K).
  int64_t hash_tables = 150;             ///< magicpig: hash tables (L).
  int64_t features = 256;                ///< performer: random features (m).
  int64_t clusters = 16;                 ///< routing-transformer(-causal): clusters a KV head.
  int64_t cluster_keys = 64;             ///< routing-transformer(-causal): tokens of a cluster (w).
  int64_t pool = 16;                     ///< linformer(-causal): tokens averaged into one key.

  /// Declares the flags; the help of each begins with the methods it belongs to.
  void declare(OptionTable& table);
  /// Throws UsageError, naming flag and methods, for a flag of these that was changed though it is none of the
  /// method's. An empty name stands for a method that is none of them.
  void check(const OptionTable& table, const std::string& method) const;
};

}  // namespace focus
