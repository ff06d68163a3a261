#include "attention/methods/bigbird.h"

#include "attention/methods/hash.h"
#include "base/error.h"

namespace focus {

BigBird::BigBird(const NearKeys& near, int64_t block, int64_t random_blocks, uint64_t seed)
    : FarKeyAttention(near), block_(block), random_blocks_(random_blocks), seed_(seed) {
  require(block > 0 && random_blocks >= 0, "bigbird: block {} or random_blocks {} out of range", block, random_blocks);
}

FarKeyAttention::Chooser BigBird::chooser(const DocumentView& document) {
  const int64_t heads = document.q.size(0);
  const uint64_t layer_key = mix(seed_, static_cast<uint64_t>(document.layer));
  return [this, heads, layer_key](const Tile& tile) {
    const int64_t t = tile.k.size(1);
    const int64_t first_block = tile.first / block_;
    const int64_t last_block = (t - 1) / block_;
    const at::Tensor drawn = at::zeros({heads, last_block - first_block + 1, last_block + 1}, at::kBool);
    auto drawn_at = drawn.accessor<bool, 3>();
    for (int64_t h = 0; h < heads; ++h) {
      const uint64_t head_key = mix(layer_key, static_cast<uint64_t>(h));
      for (int64_t b = first_block; b <= last_block; ++b) {
        for (const int64_t x : sample(mix(head_key, static_cast<uint64_t>(b)), random_blocks_, b)) {
          drawn_at[h][b - first_block][x] = true;
        }
      }
    }
    const at::Tensor row = tile.positions().div(block_, "floor") - first_block;
    const at::Tensor blocks = drawn.to(tile.q.device()).index_select(1, row);
    return Choice{
        .keep = spread_blocks(blocks, block_, t).unsqueeze(1), .bias = {}, .rest_weight = {}, .rest_value = {}};
  };
}

}  // namespace focus
