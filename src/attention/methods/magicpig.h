#pragma once

#include <cstdint>
#include <string>

#include "attention/methods/far_key_attention.h"

namespace focus {

/// MagicPIG (Chen et al. 2024, sections 4.2 and 4.3, algorithm 1): importance sampling by locality sensitive hashing.
/// L tables of K sign bits of random projections; a far key is drawn for a query when both fall into the same bucket of
/// at least two tables, which happens with probability
///     u = 1 - (1 - p^K)^L - L p^K (1 - p^K)^(L - 1),  p = 1 - arccos(cos(q, k)) / pi,
/// and its score is corrected by -ln u, so that the sum over draws estimates that over all keys. Window and sinks are
/// exact. Keys are centred before they are hashed, as in the paper by the mean of a text that has been read already:
/// here that of the keys before the query's aligned stretch of 64 tokens, so that no later token counts. Projections
/// are drawn from (seed, layer). Pairs count the keys drawn; hashing costs K L dot products a token.
class MagicPig : public FarKeyAttention {
 public:
  MagicPig(const NearKeys& near, int64_t bits, int64_t tables, uint64_t seed);
  std::string name() const override { return "magicpig"; }

 protected:
  Chooser chooser(const DocumentView& document) override;

 private:
  int64_t bits_;
  int64_t tables_;
  uint64_t seed_;
};

}  // namespace focus
