#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>

#include "attention/methods/document_attention.h"

namespace focus {

/// The keys that every query attends: those at a distance up to `window`, and the first `sinks` tokens of its document.
struct NearKeys {
  int64_t window = 128;
  int64_t sinks = 4;
};

/// n queries at neighbouring positions and the t keys up to the last of them. A tile never crosses a multiple of
/// kTokens, so that one pass and chunks see the same tiles or parts of them.
struct Tile {
  static constexpr int64_t kTokens = 64;

  int64_t first = 0;    ///< Position of the first query.
  at::Tensor q;         ///< [Hkv, G, n, D]
  at::Tensor k;         ///< [Hkv, t, D]
  at::Tensor v;         ///< [Hkv, t, D]
  at::Tensor scores;    ///< [Hkv, G, n, t], softcap(scale q.k); of pairs that are not causal too.
  at::Tensor distance;  ///< int64 [n, t], i - j.
  at::Tensor visible;   ///< bool [n, t], j <= i and inside the layer's own sliding window.
  at::Tensor near;      ///< bool [n, t], those of them in window or sinks.
  at::Tensor far;       ///< bool [n, t], the rest of them: what there is to choose from.

  /// Positions of the queries, int64 [n].
  at::Tensor positions() const;
  /// Start of the aligned stretch of kTokens tokens in which the tile lies: what a method learns from the tokens before
  /// it is the same for one pass and for chunks.
  int64_t aligned_start() const { return first / kTokens * kTokens; }
};

/// Far keys that a method keeps for a tile. Masks and weights broadcast to [Hkv, G, n, t].
struct Choice {
  at::Tensor keep;  ///< bool; pairs outside Tile::far are ignored.
  at::Tensor bias;  ///< Added to the scores of the far keys kept; undefined for none.
  at::Tensor
      rest_weight;  ///< [Hkv, G, n, 1]: out = (1 - rest_weight) out + rest_weight * rest_value; undefined for none.
  at::Tensor rest_value;  ///< [Hkv, 1, n, D]
};

/// Attention over window, sinks and a choice of far keys. A subclass says which; the base scores all pairs of one tile
/// of queries at a time, so memory is O(Hq * kTokens * Tk).
class FarKeyAttention : public DocumentAttention {
 protected:
  using Chooser = std::function<Choice(const Tile&)>;

  /// Throws UsageError for a negative window or number of sinks.
  explicit FarKeyAttention(const NearKeys& near);
  /// What chooses for the tiles of one document; may hold what it has computed from all keys, as long as the choice for
  /// a query depends on keys up to its position only.
  virtual Chooser chooser(const DocumentView& document) = 0;
  at::Tensor attend_document(const DocumentView& document, int64_t& kept) final;

  const NearKeys& near_keys() const { return near_; }

 private:
  NearKeys near_;
};

/// Tokens first .. first + n - 1 of a document as a tile without scores.
Tile make_tile(const DocumentView& document, const NearKeys& near, int64_t first, int64_t n);

/// bool, like scores: the `count` largest along the last dimension, fewer where fewer are above -inf.
at::Tensor largest(const at::Tensor& scores, int64_t count);

/// Along the last dimension of t keys: bool [..., blocks], whether any key of a block is set.
at::Tensor any_in_block(const at::Tensor& keys, int64_t block);

/// The inverse: [..., blocks] spread to t keys.
at::Tensor spread_blocks(const at::Tensor& blocks, int64_t block, int64_t t);

/// Means of whole blocks of keys, [Hkv, Tk / block, D].
at::Tensor block_means(const at::Tensor& k, int64_t block);

}  // namespace focus
