#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>

#include "attention/method.h"

namespace focus {

/// One document of one row of the batch: its last Tq tokens are the queries of all its Tk tokens. Positions count from
/// the start of the document; queries come as the G heads of each KV head.
struct DocumentView {
  int64_t layer = 0;
  at::Tensor q;  ///< [Hkv, G, Tq, D], float32 (float64 where the input is).
  at::Tensor k;  ///< [Hkv, Tk, D]
  at::Tensor v;  ///< [Hkv, Tk, D]
  double scale = 1.0;
  double softcap = 0.0;
  int64_t layer_window = 0;

  /// Position of the first query.
  int64_t first() const { return k.size(1) - q.size(2); }
};

/// What the comparison methods share: a plain cache, packed documents and padding, any dtype, grouped heads. A subclass
/// sees one document at a time. Made of plain ATen operations, so it is differentiable, and not made for speed: pairs
/// are what these methods are compared by.
class DocumentAttention : public AttentionMethod {
 public:
  at::Tensor attend(const AttentionInput& input) override;
  /// A KvCache. Throws Error for a method that is not causal.
  std::unique_ptr<LayerCache> make_cache(int64_t layer, int64_t batch, int64_t capacity) const override;
  /// Summed over query heads.
  PairCount pairs() const override { return pairs_; }
  void reset_pairs() override { pairs_ = {}; }

 protected:
  /// Returns [Hkv, G, Tq, D] in the dtype of q and adds the pairs attended, or what costs as much, to `kept`, summed
  /// over query heads.
  virtual at::Tensor attend_document(const DocumentView& document, int64_t& kept) = 0;
  /// Throws Error for a layer that the method cannot serve: for methods whose keys are mixtures of tokens, a sliding
  /// window of the layer that `document` exceeds.
  void refuse_layer_window(const DocumentView& document) const;

 private:
  at::Tensor attend_row(const AttentionInput& input, const at::Tensor& k, const at::Tensor& v, int64_t row);

  PairCount pairs_;
};

}  // namespace focus
