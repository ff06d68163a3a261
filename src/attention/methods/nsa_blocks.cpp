#include "attention/methods/nsa_blocks.h"

#include <limits>

#include "base/error.h"

namespace focus {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Means of 2 * stride keys, one every stride: [Hkv, Tk / stride - 1, D].
at::Tensor compressed_keys(const at::Tensor& k, int64_t stride) {
  const at::Tensor quarters = block_means(k, stride);
  return (quarters.slice(1, 0, -1) + quarters.slice(1, 1)) * 0.5;
}

// Quarters that stretch c (quarters c and c + 1) shares with block b (quarters 4b .. 4b + 3): [stretches, blocks].
at::Tensor shared_quarters(int64_t stretches, int64_t blocks, const at::TensorOptions& options) {
  const at::Tensor c = at::arange(stretches, options.dtype(at::kLong)).unsqueeze(1);
  const at::Tensor b = at::arange(blocks, options.dtype(at::kLong));
  return (c.div(4, "floor").eq(b).to(at::kLong) + (c + 1).div(4, "floor").eq(b)).to(options.dtype());
}

}  // namespace

NsaBlocks::NsaBlocks(const NearKeys& near, int64_t block, int64_t top_blocks)
    : FarKeyAttention(near), block_(block), top_blocks_(top_blocks) {
  if (block < 4 || block % 4 != 0) fail_usage("--block-size {}: nsa-blocks needs a multiple of 4", block);
  require(top_blocks > 0, "nsa-blocks: top_blocks {} must be positive", top_blocks);
}

FarKeyAttention::Chooser NsaBlocks::chooser(const DocumentView& document) {
  const int64_t stride = block_ / 4;
  const at::Tensor means =
      document.k.size(1) >= 2 * stride ? compressed_keys(document.k.detach(), stride) : at::Tensor();
  return [this, means, stride, scale = document.scale](const Tile& tile) {
    const int64_t t = tile.k.size(1);
    const int64_t blocks = (t + block_ - 1) / block_;
    const int64_t stretches = t / stride - 1;
    if (stretches < 1) return Choice{.keep = tile.near, .bias = {}, .rest_weight = {}, .rest_value = {}};
    const at::Tensor stretch = at::arange(stretches, tile.distance.options());
    const at::Tensor ended = ((stretch + 2) * stride).le(tile.positions().unsqueeze(1) + 1);  // [n, stretches]
    const at::Tensor scores =
        at::matmul(tile.q.detach(), means.slice(1, 0, stretches).unsqueeze(1).transpose(-1, -2)) * scale;
    // Rows of queries before the end of the first stretch have no weight at all.
    const at::Tensor weights = scores.masked_fill(ended.logical_not(), kMinusInfinity).softmax(-1).nan_to_num(0.0);
    const at::Tensor importance =
        at::matmul(weights, shared_quarters(stretches, blocks, weights.options())).sum(1, true);  // [Hkv, 1, n, blocks]
    const at::Tensor open = any_in_block(tile.far, block_)
                                .logical_and((at::arange(blocks, tile.distance.options()) * block_ + 2 * stride)
                                                 .le(tile.positions().unsqueeze(1) + 1));
    const at::Tensor keep = largest(importance.masked_fill(open.logical_not(), kMinusInfinity), top_blocks_);
    return Choice{.keep = spread_blocks(keep, block_, t), .bias = {}, .rest_weight = {}, .rest_value = {}};
  };
}

}  // namespace focus
