#include "attention/methods/routing_transformer.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace focus {

namespace {

constexpr int kRounds = 10;

at::Tensor unit(const at::Tensor& x) {
  return x / x.norm(2, -1, true).clamp_min(1e-20);
}

}  // namespace

at::Tensor spherical_kmeans(const at::Tensor& x, int64_t clusters) {
  const at::Tensor spaced = at::arange(clusters, at::TensorOptions(at::kLong).device(x.device())) * x.size(1);
  at::Tensor centroids = x.index_select(1, spaced.div(clusters, "floor"));
  for (int round = 0; round < kRounds; ++round) {
    const at::Tensor nearest = at::matmul(x, centroids.transpose(-1, -2)).argmax(-1);  // [H, n]
    const at::Tensor member = at::one_hot(nearest, clusters).to(x.scalar_type());      // [H, n, clusters]
    const at::Tensor sums = at::matmul(member.transpose(-1, -2), x);
    centroids = at::where(member.sum(1).gt(0).unsqueeze(-1), unit(sums), centroids);
  }
  return centroids;
}

RoutingTransformer::RoutingTransformer(const NearKeys& near, int64_t clusters, int64_t cluster_keys, bool causal)
    : FarKeyAttention(near), clusters_(clusters), cluster_keys_(cluster_keys), causal_(causal) {
  require(clusters > 0 && cluster_keys > 0, "{}: clusters {} and cluster_keys {} must be positive", name(), clusters,
          cluster_keys);
}

FarKeyAttention::Chooser RoutingTransformer::chooser(const DocumentView& document) {
  return causal_ ? by_prefix(document) : by_text(document);
}

FarKeyAttention::Chooser RoutingTransformer::by_text(const DocumentView& document) const {
  const at::Tensor keys = unit(document.k.detach());
  const at::Tensor centroids = spherical_kmeans(keys, std::min(clusters_, keys.size(1)));  // [Hkv, K, D]
  const at::Tensor key_member =
      largest(at::matmul(centroids, keys.transpose(-1, -2)), cluster_keys_).to(keys.scalar_type());  // [Hkv, K, Tk]
  const at::Tensor query_member =
      largest(at::matmul(centroids.unsqueeze(1), unit(document.q.detach()).transpose(-1, -2)), cluster_keys_)
          .to(keys.scalar_type());  // [Hkv, G, K, Tq]
  return [key_member, query_member](const Tile& tile) {
    const at::Tensor queries = query_member.slice(-1, tile.first, tile.first + tile.q.size(2)).transpose(-1, -2);
    Choice choice;
    choice.keep = at::matmul(queries, key_member.slice(-1, 0, tile.k.size(1)).unsqueeze(1)).gt(0);
    return choice;
  };
}

FarKeyAttention::Chooser RoutingTransformer::by_prefix(const DocumentView& document) const {
  const at::Tensor keys = unit(document.k.detach());
  return [this, keys](const Tile& tile) {
    Choice choice;
    const int64_t before = tile.aligned_start();
    if (before == 0) {
      choice.keep = tile.near;
      return choice;
    }
    const at::Tensor centroids = spherical_kmeans(keys.slice(1, 0, before), std::min(clusters_, before));
    const at::Tensor own = at::matmul(unit(tile.q.detach()), centroids.unsqueeze(1).transpose(-1, -2)).argmax(-1);
    const at::Tensor nearness =
        at::matmul(centroids, keys.slice(1, 0, tile.k.size(1)).transpose(-1, -2));             // [Hkv, K, t]
    const at::Tensor rows = own.flatten(1).unsqueeze(-1).expand({-1, -1, nearness.size(-1)});  // [Hkv, G * n, t]
    const at::Tensor scores = nearness.gather(1, rows).view(tile.scores.sizes());
    choice.keep =
        largest(scores.masked_fill(tile.far.logical_not(), -std::numeric_limits<double>::infinity()), cluster_keys_);
    return choice;
  };
}

}  // namespace focus
