#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "attention/method.h"
#include "attention/routing/config.h"
#include "attention/routing/router.h"

namespace focus {

class ListCache;

/// How tokens spread over the content lists (list 0 is left out).
struct Dominance {
  std::map<int64_t, double> largest_share;  ///< By layer: share of the fullest list, the largest over the list sets.
  std::map<int64_t, int64_t> unused_lists;  ///< By layer: lists without a token, summed over the list sets.
  /// The largest of all layers, 0 when nothing was counted.
  double largest() const;
};

/// Attention by lists: window and sinks, and whatever lists a subclass puts keys in and lets queries probe. Passes over
/// many tokens go through the attention op; one new token of a cache gathers its allowed keys alone.
class ListAttention : public AttentionMethod {
 public:
  at::Tensor attend(const AttentionInput& input) override;
  /// A ListCache; a KvCache for a layer that attends densely.
  std::unique_ptr<LayerCache> make_cache(int64_t layer, int64_t batch, int64_t capacity) const override;
  PairCount pairs() const override { return pairs_; }
  void reset_pairs() override { pairs_ = {}; }

  const RoutingConfig& config() const { return config_; }
  /// Over all tokens seen since the last reset_dominance().
  virtual Dominance dominance() const;
  void reset_dominance() { usage_.clear(); }

 protected:
  explicit ListAttention(const RoutingConfig& config);

  /// Lists of the Tq new tokens; position_in_document int64 [B, Tq], negative for padding.
  virtual Routes route(const AttentionInput& input, const at::Tensor& position_in_document) = 0;
  /// False for a layer that attends densely.
  virtual bool is_sparse(int64_t /*layer*/) const { return true; }
  /// List sets that a dense layer counts for in pairs(), those of the sparse layers.
  virtual int64_t head_sets() const { return 1; }
  /// Attention of many tokens over the allowed pairs; input.q with keys and values of all tokens, those of a cache
  /// included.
  virtual at::Tensor attend_pairs(const AttentionInput& input, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionParams& params);
  /// Content lists, 0 if there are none to speak of.
  virtual int64_t lists() const = 0;

  /// Tokens counted by layer: [sets][lists + 1], list 0 among them.
  const std::map<int64_t, std::vector<std::vector<int64_t>>>& usage() const { return usage_; }

 private:
  at::Tensor attend_densely(const AttentionInput& input);
  at::Tensor decode(const AttentionInput& input, ListCache& cache, const Routes& routes);
  void count_usage(int64_t layer, const at::Tensor& key_group);

  RoutingConfig config_;
  PairCount pairs_;
  std::map<int64_t, std::vector<std::vector<int64_t>>> usage_;
};

}  // namespace focus
