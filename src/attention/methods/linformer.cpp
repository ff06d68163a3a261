#include "attention/methods/linformer.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"

namespace focus {

namespace {

// softcap(scale q.k), [Hkv, G, n, t].
at::Tensor score(const at::Tensor& q, const at::Tensor& k, const DocumentView& document) {
  const at::Tensor scores = at::matmul(q, k.unsqueeze(1).transpose(-1, -2)) * document.scale;
  return document.softcap > 0 ? (scores / document.softcap).tanh() * document.softcap : scores;
}

// Means of stretches of `pool` rows of x [H, T, D], the last one of what is left; rows before `skip` do not count.
// Stretches without rows give 0.
at::Tensor means(const at::Tensor& x, int64_t pool, int64_t skip) {
  const int64_t stretches = (x.size(1) + pool - 1) / pool;
  const at::Tensor counted = at::arange(x.size(1), x.options()).ge(skip).to(x.scalar_type()).unsqueeze(-1);  // [T, 1]
  const auto sums = [&](const at::Tensor& rows) {
    return at::constant_pad_nd(rows, {0, 0, 0, stretches * pool - x.size(1)}).unflatten(-2, {stretches, pool}).sum(-2);
  };
  return sums(x * counted) / sums(counted).clamp_min(1);
}

}  // namespace

Linformer::Linformer(int64_t pool) : pool_(pool) {
  require(pool > 0, "linformer: pool {} must be positive", pool);
}

at::Tensor Linformer::attend_document(const DocumentView& document, int64_t& kept) {
  refuse_layer_window(document);
  const at::Tensor keys = means(document.k, pool_, 0);
  const at::Tensor weights = score(document.q, keys, document).softmax(-1);
  kept += weights.numel();
  return at::matmul(weights, means(document.v, pool_, 0).unsqueeze(1));
}

CausalLinformer::CausalLinformer(const NearKeys& near, int64_t pool) : near_(near), pool_(pool) {
  if (near.window < 0) fail_usage("--window {}: expected 0 or more", near.window);
  if (near.sinks < 0) fail_usage("--sinks {}: expected 0 or more", near.sinks);
  require(pool > 0, "linformer-causal: pool {} must be positive", pool);
}

at::Tensor CausalLinformer::attend_document(const DocumentView& document, int64_t& kept) {
  refuse_layer_window(document);
  const int64_t tokens = document.k.size(1);
  const int64_t heads = document.q.size(0) * document.q.size(1);
  const at::Tensor mean_keys = means(document.k, pool_, near_.sinks);
  const at::Tensor mean_values = means(document.v, pool_, near_.sinks);
  std::vector<at::Tensor> parts;
  for (int64_t first = document.first(); first < tokens;) {
    const int64_t end = std::min(tokens, (first / Tile::kTokens + 1) * Tile::kTokens);
    const Tile tile = make_tile(document, near_, first, end - first);
    const int64_t stretches = end / pool_;
    // Where the exact keys begin: the last boundary of stretches that is not inside the window. [n, 1]
    const at::Tensor boundary =
        (tile.positions() - near_.window).clamp_min(0).div(pool_, "floor").mul(pool_).unsqueeze(1);
    const at::Tensor j = at::arange(end, tile.distance.options());
    const at::Tensor exact = tile.near.logical_or(tile.visible.logical_and(j.ge(boundary)));
    const at::Tensor stretch_end = (at::arange(stretches, tile.distance.options()) + 1) * pool_;
    const at::Tensor whole = stretch_end.le(boundary).logical_and(stretch_end.gt(near_.sinks));
    const at::Tensor allowed = at::cat({exact, whole}, 1);
    kept += allowed.sum().item<int64_t>() * heads;
    const at::Tensor k = at::cat({tile.k, mean_keys.slice(1, 0, stretches)}, 1);
    const at::Tensor v = at::cat({tile.v, mean_values.slice(1, 0, stretches)}, 1);
    const at::Tensor weights = score(tile.q, k, document)
                                   .masked_fill(allowed.logical_not(), -std::numeric_limits<double>::infinity())
                                   .softmax(-1);
    parts.push_back(at::matmul(weights, v.unsqueeze(1)));
    first = end;
  }
  return at::cat(parts, 2);
}

}  // namespace focus
