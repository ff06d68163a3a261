#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace focus {

/// One layer of one training window, as seen by the losses: everything comes from the frozen model's forward pass with
/// full attention. One sequence, no batch dimension.
struct DistillationLayer {
  at::Tensor hidden;          ///< float32 [T, d], the attention block's input after its norm.
  at::Tensor q;               ///< float32 [Hq, T, D], after rotary embedding.
  at::Tensor k;               ///< float32 [Hkv, T, D], after rotary embedding.
  at::Tensor v;               ///< float32 [Hkv, T, D].
  at::Tensor query_weight;    ///< float32 [Hq * D, d], the frozen projection.
  at::Tensor key_weight;      ///< float32 [Hkv * D, d].
  at::Tensor output_weight;   ///< float32 [d, Hq * D].
  at::Tensor document_start;  ///< int64 [T]: first position of each token's document; undefined: one document.
  double scale = 1.0;
  double softcap = 0.0;
  int64_t layer_window = 0;
};

/// What full attention does at a few sampled query rows, kept as constants while a router is trained against it.
/// The soft mask w in [0, 1] multiplies the exponentials: P = w e^s / sum(w e^s), the hard mask being w in {0, 1}.
class SampledTeacher {
 public:
  /// rows: int64 [R], ascending query positions. `window` and `sinks` mark the pairs that are visible anyway.
  SampledTeacher(const DistillationLayer& layer, const at::Tensor& rows, int64_t window, int64_t sinks);

  /// bool [R, T]: pairs a router decides on: j < i - window, not a sink, in the same document (and inside the layer's
  /// own window).
  const at::Tensor& far() const { return far_; }
  const at::Tensor& rows() const { return rows_; }
  /// Pairs at the sampled rows that are visible whatever the router does, and all causal pairs of the document there.
  int64_t near_pairs() const { return near_pairs_; }
  int64_t causal_pairs() const { return causal_pairs_; }

  /// Relative squared error of the block's output under far-pair weights [H, R, T] (H = Hkv or 1; near pairs keep
  /// weight 1): sum ||W_o (o_w - o)||^2 / sum ||W_o o||^2. Differentiable in `weights`.
  at::Tensor output_error(const at::Tensor& weights) const;

  /// The same for each query head's part of the output, relative to that part, under a hard mask: [Hq], sum ||W_o,h
  /// (o_w,h - o_h)||^2 / sum ||W_o,h o_h||^2. `dropped`, bool [H, R, T], says which pairs are left out, far ones only.
  /// A head whose output is small counts as much as one whose output is large: heads that look tokens up are often of
  /// the former kind. Without gradient.
  at::Tensor head_errors(const at::Tensor& dropped) const;

 private:
  /// e^s under the weights, [Hkv, G, R, T].
  at::Tensor weighted(const at::Tensor& weights) const;
  /// What the heads read, [Hkv, G, R, D].
  at::Tensor head_outputs(const at::Tensor& exponentials) const;
  at::Tensor block_output(const at::Tensor& head_outputs) const;
  /// Their parts of the block's output as squared norms over all rows, [Hq].
  at::Tensor head_squares(const at::Tensor& head_outputs) const;

  at::Tensor rows_;
  at::Tensor far_;
  int64_t near_pairs_ = 0;
  int64_t causal_pairs_ = 0;
  at::Tensor exponentials_;  // [Hkv, G, R, T], e^(s - row maximum), 0 where not causal.
  at::Tensor v_;
  at::Tensor output_weight_;
  at::Tensor heads_;          // [Hkv, G, R, D]
  at::Tensor head_squares_;   // [Hq]
  at::Tensor output_;         // [R, d]
  double output_square_ = 0;  // ||output||^2
};

/// Per row and head set, the index score that the best `fraction` of the far keys reach: scores [H, R, T] -> [H, R, 1].
at::Tensor far_threshold(const at::Tensor& scores, const at::Tensor& far, double fraction);

/// Query rows to sample: `count` distinct positions of [first, length), ascending, int64 [count] (all of them if
/// fewer).
at::Tensor sample_rows(int64_t first, int64_t length, int64_t count, at::Generator& generator);

}  // namespace focus
