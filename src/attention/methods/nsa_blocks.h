#pragma once

#include <string>

#include "attention/methods/far_key_attention.h"

namespace focus {

/// The block selection of NSA, native sparse attention (Yuan et al. 2025, section 3.3.2, equations 8 to 12), without
/// training. Keys are compressed by the mean (in place of the paper's trained MLP) over stretches of block / 2 tokens
/// that start every block / 4, the ratios of the paper's 32, 16 and 64. A query's softmax over the stretches that ended
/// before it (equation 8) gives each block the weight of the stretches in it, a stretch counted once for every quarter
/// that it shares with the block (equation 9); the weights of the G heads of a KV head are summed (equation 10), and
/// all of them attend the n best blocks (equations 11 and 12) beside window and sinks, which play the part of the
/// paper's window branch, first block and local blocks. The compressed branch needs trained gates and is left out.
/// Up to n * block keys a query beside window and sinks; choosing scores 4t / block means.
class NsaBlocks : public FarKeyAttention {
 public:
  /// Throws UsageError unless block is a multiple of 4.
  NsaBlocks(const NearKeys& near, int64_t block, int64_t top_blocks);
  std::string name() const override { return "nsa-blocks"; }

 protected:
  Chooser chooser(const DocumentView& document) override;

 private:
  int64_t block_;
  int64_t top_blocks_;
};

}  // namespace focus
