#include "attention/methods/moba.h"

#include <limits>

#include "base/error.h"

namespace focus {

Moba::Moba(const NearKeys& near, int64_t block, int64_t top_blocks)
    : FarKeyAttention(near), block_(block), top_blocks_(top_blocks) {
  require(block > 0 && top_blocks > 0, "moba: block {} and top_blocks {} must be positive", block, top_blocks);
}

FarKeyAttention::Chooser Moba::chooser(const DocumentView& document) {
  const at::Tensor means = block_means(document.k.detach(), block_);  // [Hkv, Tk / block, D]
  return [this, means](const Tile& tile) {
    const int64_t t = tile.k.size(1);
    const int64_t blocks = (t + block_ - 1) / block_;
    const at::Tensor own_block = tile.positions().div(block_, "floor").unsqueeze(1);  // [n, 1]
    const at::Tensor block_id = at::arange(blocks, own_block.options());
    // Earlier blocks that hold a far key; all of them are whole.
    const at::Tensor open = any_in_block(tile.far, block_).logical_and(block_id.lt(own_block)).slice(-1, 0, t / block_);
    const at::Tensor score = at::matmul(tile.q.detach(), means.slice(1, 0, t / block_).unsqueeze(1).transpose(-1, -2));
    at::Tensor keep = largest(score.masked_fill(open.logical_not(), -std::numeric_limits<double>::infinity()),
                              top_blocks_ - 1);  // [Hkv, G, n, t / block]
    keep = at::constant_pad_nd(keep, {0, blocks - t / block_}).logical_or(block_id.eq(own_block));
    return Choice{.keep = spread_blocks(keep, block_, t), .bias = {}, .rest_weight = {}, .rest_value = {}};
  };
}

}  // namespace focus
