#pragma once

#include <string>

#include "attention/methods/far_key_attention.h"

namespace focus {

/// SparQ attention (Ribar et al. 2023, algorithm 1). A query's r largest components score all keys, with the
/// temperature sqrt(D |q_r|_1 / |q|_1) of its equation for s-hat; the k far keys with the highest of these approximate
/// weights are attended exactly, beside window and sinks. Mean reallocation: with alpha the approximate weight of all
/// keys attended, out = alpha * exact + (1 - alpha) * mean of the values so far. Under grouped heads the components are
/// those with the largest sum of |q| over the group, and the keys those with the largest sum of weights (section 4.1).
/// Pairs count the keys attended; choosing reads r of D components of every key, which costs as much as t * r / (2 D)
/// pairs of one key and one value more.
class Sparq : public FarKeyAttention {
 public:
  Sparq(const NearKeys& near, int64_t components, int64_t top_keys, bool mean_reallocation);
  std::string name() const override { return "sparq"; }

 protected:
  /// Throws Error when the heads have fewer components than are asked for.
  Chooser chooser(const DocumentView& document) override;

 private:
  int64_t components_;
  int64_t top_keys_;
  bool mean_reallocation_;
};

}  // namespace focus
