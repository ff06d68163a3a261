#pragma once

#include <cstdint>
#include <string>

#include "attention/methods/far_key_attention.h"

namespace focus {

/// Routing Transformer (Roy et al. 2021, section 4, equations 7 to 12), without training: queries and keys are scaled
/// to unit length, clustered by spherical k-means (centroids by KV head, of the keys of the text itself, since nothing
/// was learned on others), and attend within their cluster, beside window and sinks.
/// As published, a cluster takes the w queries and the w keys nearest to its centroid among the whole text. Both the
/// centroids and these choices read later tokens: not causal, shown for its leak.
/// The causal variant: centroids are those of the keys before the query's aligned stretch of 64 tokens; a query belongs
/// to its nearest centroid and attends the w earlier keys nearest to that. Up to w keys a query beside window and
/// sinks. Pairs count the keys attended; clustering costs K dot products a token and round.
class RoutingTransformer : public FarKeyAttention {
 public:
  RoutingTransformer(const NearKeys& near, int64_t clusters, int64_t cluster_keys, bool causal);
  std::string name() const override { return causal_ ? "routing-transformer-causal" : "routing-transformer"; }
  bool is_causal() const override { return causal_; }

 protected:
  Chooser chooser(const DocumentView& document) override;

 private:
  Chooser by_text(const DocumentView& document) const;
  Chooser by_prefix(const DocumentView& document) const;

  int64_t clusters_;
  int64_t cluster_keys_;
  bool causal_;
};

/// Centroids [H, clusters, D] of unit vectors x [H, n, D], n >= clusters: ten rounds of spherical k-means from evenly
/// spaced vectors; an empty cluster keeps its centroid.
at::Tensor spherical_kmeans(const at::Tensor& x, int64_t clusters);

}  // namespace focus
