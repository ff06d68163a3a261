#pragma once

#include <cstdint>
#include <string>

#include "attention/methods/far_key_attention.h"

namespace focus {

/// Linformer (Wang et al. 2020, section 4, equation 7) without training: keys and values are projected along the text,
/// with the mean over stretches of `pool` tokens as projection (the paper's pooling variant), and every query attends
/// all of the projected keys. They mix later tokens: not causal, shown for its leak. Pairs count the projected keys,
/// T / pool (rounded up) a query.
class Linformer : public DocumentAttention {
 public:
  explicit Linformer(int64_t pool);
  std::string name() const override { return "linformer"; }
  bool is_causal() const override { return false; }

 protected:
  /// Throws Error for a layer with a sliding window that the text exceeds.
  at::Tensor attend_document(const DocumentView& document, int64_t& kept) override;

 private:
  int64_t pool_;
};

/// The block-wise causal variant: exact keys in window and sinks, and from there back to the next whole stretch; of
/// everything earlier the mean of each stretch of `pool` tokens, the sinks left out. Every earlier token is seen once,
/// exactly or in a mean. Pairs count exact keys and means: up to w + pool + sinks + t / pool a query.
class CausalLinformer : public DocumentAttention {
 public:
  /// Throws UsageError for a negative window or number of sinks.
  CausalLinformer(const NearKeys& near, int64_t pool);
  std::string name() const override { return "linformer-causal"; }

 protected:
  /// Throws Error for a layer with a sliding window that the text exceeds.
  at::Tensor attend_document(const DocumentView& document, int64_t& kept) override;

 private:
  NearKeys near_;
  int64_t pool_;
};

}  // namespace focus
