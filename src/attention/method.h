#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/op.h"

namespace focus {

/// Keys, values and whatever else a method keeps of the past tokens of one layer. Made by AttentionMethod::make_cache,
/// which alone knows what is inside.
class LayerCache {
 public:
  virtual ~LayerCache() = default;
  /// Tokens held so far.
  virtual int64_t length() const = 0;
  /// Bytes held.
  virtual int64_t bytes() const = 0;
  /// Forgets all tokens at positions >= length.
  virtual void truncate(int64_t length) = 0;
  /// Keeps keys and values in this dtype, whatever dtype they come in; only while no tokens are held. Throws Error
  /// where that is not so, or for a cache that cannot.
  virtual void store_as(at::ScalarType dtype);
};

/// What an attention block hands to its method, for Tq new tokens.
struct AttentionInput {
  int64_t layer = 0;
  at::Tensor hidden;  ///< [B, Tq, d], the block's input after its norm: the only thing routing may look at. Where
                      ///< a family has no norm there, divided by its root mean square.
  at::Tensor q;       ///< [B, Hq, Tq, D], after rotary embedding.
  at::Tensor k;       ///< [B, Hkv, Tq, D], after rotary embedding.
  at::Tensor v;       ///< [B, Hkv, Tq, D].
  double scale = 1.0;
  double softcap = 0.0;
  int64_t layer_window = 0;                  ///< The layer's own sliding window (i - j < layer_window), 0 for none.
  std::optional<at::Tensor> document_start;  ///< int32 [B, Tk], see AttentionParams. Absent: one document.
  /// The block's projections, for training routers: query [Hq * D, d], key [Hkv * D, d], output [d, Hq * D]; views.
  at::Tensor query_weight, key_weight, output_weight;
  /// Where queries and keys are normalised, the norm's weight for each row of these projections ([Hq * D], [Hkv * D]).
  at::Tensor query_gain, key_gain;
  LayerCache* cache = nullptr;  ///< Null: the Tq tokens are the whole sequence. Else they follow those in the cache.
};

/// One way to attend. A model's blocks call `attend`; nothing else of a block depends on the method.
/// Implementations must be causal: the result of token t depends on tokens <= t only (checked by the leak probe), or
/// say so in `is_causal`.
class AttentionMethod {
 public:
  virtual ~AttentionMethod() = default;
  /// Name in the registry, as given to --method.
  virtual std::string name() const = 0;
  virtual bool is_causal() const { return true; }
  /// Returns [B, Hq, Tq, D]. With a cache, appends the new tokens to it and attends over all of it.
  virtual at::Tensor attend(const AttentionInput& input) = 0;
  /// An empty cache for one layer with room for `capacity` tokens.
  virtual std::unique_ptr<LayerCache> make_cache(int64_t layer, int64_t batch, int64_t capacity) const = 0;
  /// Pairs kept and causal pairs over all attend() calls since the last reset, summed over layers, batch and list sets.
  virtual PairCount pairs() const = 0;
  virtual void reset_pairs() = 0;
};

}  // namespace focus
