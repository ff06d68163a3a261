#include "attention/methods/far_key_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/error.h"

namespace focus {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

}  // namespace

at::Tensor Tile::positions() const {
  return at::arange(first, first + q.size(2), at::TensorOptions(at::kLong).device(q.device()));
}

at::Tensor largest(const at::Tensor& scores, int64_t count) {
  const auto [values, indices] = scores.topk(std::min(count, scores.size(-1)), -1);
  return at::zeros_like(scores, at::kBool).scatter(-1, indices, values.gt(kMinusInfinity));
}

at::Tensor any_in_block(const at::Tensor& keys, int64_t block) {
  const int64_t blocks = (keys.size(-1) + block - 1) / block;
  return at::constant_pad_nd(keys, {0, blocks * block - keys.size(-1)}).unflatten(-1, {blocks, block}).any(-1);
}

at::Tensor spread_blocks(const at::Tensor& blocks, int64_t block, int64_t t) {
  return blocks.repeat_interleave(block, -1).slice(-1, 0, t);
}

at::Tensor block_means(const at::Tensor& k, int64_t block) {
  const int64_t blocks = k.size(1) / block;
  return k.slice(1, 0, blocks * block).unflatten(1, {blocks, block}).mean(2);
}

FarKeyAttention::FarKeyAttention(const NearKeys& near) : near_(near) {
  if (near.window < 0) fail_usage("--window {}: expected 0 or more", near.window);
  if (near.sinks < 0) fail_usage("--sinks {}: expected 0 or more", near.sinks);
}

Tile make_tile(const DocumentView& document, const NearKeys& near, int64_t first, int64_t n) {
  const int64_t row = first - document.first();
  Tile tile;
  tile.first = first;
  tile.q = document.q.slice(2, row, row + n);
  tile.k = document.k.slice(1, 0, first + n);
  tile.v = document.v.slice(1, 0, first + n);
  const at::Tensor j = at::arange(first + n, at::TensorOptions(at::kLong).device(document.k.device()));
  tile.distance = tile.positions().unsqueeze(1) - j;
  tile.visible = tile.distance.ge(0);
  if (document.layer_window > 0) tile.visible = tile.visible.logical_and(tile.distance.lt(document.layer_window));
  tile.near = tile.visible.logical_and(tile.distance.le(near.window).logical_or(j.lt(near.sinks)));
  tile.far = tile.visible.logical_and(tile.near.logical_not());
  return tile;
}

at::Tensor FarKeyAttention::attend_document(const DocumentView& document, int64_t& kept) {
  const int64_t tokens = document.k.size(1);
  const int64_t heads = document.q.size(0) * document.q.size(1);
  const Chooser choose = chooser(document);
  std::vector<at::Tensor> parts;
  for (int64_t first = document.first(); first < tokens;) {
    const int64_t end = std::min(tokens, (first / Tile::kTokens + 1) * Tile::kTokens);
    Tile tile = make_tile(document, near_, first, end - first);
    tile.scores = at::matmul(tile.q, tile.k.unsqueeze(1).transpose(-1, -2)) * document.scale;
    if (document.softcap > 0) tile.scores = (tile.scores / document.softcap).tanh() * document.softcap;
    const Choice choice = choose(tile);
    const at::Tensor keep = choice.keep.logical_and(tile.far);
    const at::Tensor allowed = keep.logical_or(tile.near);
    kept += allowed.sum().item<int64_t>() * heads / (allowed.numel() / (tile.distance.numel()));
    at::Tensor scores = tile.scores;
    if (choice.bias.defined()) scores = at::where(keep, scores + choice.bias, scores);
    const at::Tensor weights = scores.masked_fill(allowed.logical_not(), kMinusInfinity).softmax(-1);
    at::Tensor out = at::matmul(weights, tile.v.unsqueeze(1));
    if (choice.rest_weight.defined()) out = at::lerp(out, choice.rest_value.expand_as(out), choice.rest_weight);
    parts.push_back(out);
    first = end;
  }
  return at::cat(parts, 2);
}

}  // namespace focus
