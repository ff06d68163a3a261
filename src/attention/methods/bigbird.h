#pragma once

#include <cstdint>
#include <string>

#include "attention/methods/far_key_attention.h"

namespace focus {

/// BigBird (Zaheer et al. 2020, section 2 and appendix D) in its causal form: window, global tokens (the sinks) and,
/// for every block of queries and every KV head, r blocks of keys drawn at random from those before it. Draws hash
/// (seed, layer, KV head, block of queries), so they are the same with and without a cache. Up to w + 1 + sinks + r *
/// block keys a query. The paper's window counts blocks, this one tokens, as that of every other method.
class BigBird : public FarKeyAttention {
 public:
  BigBird(const NearKeys& near, int64_t block, int64_t random_blocks, uint64_t seed);
  std::string name() const override { return "bigbird"; }

 protected:
  Chooser chooser(const DocumentView& document) override;

 private:
  int64_t block_;
  int64_t random_blocks_;
  uint64_t seed_;
};

}  // namespace focus
