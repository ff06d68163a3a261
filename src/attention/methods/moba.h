#pragma once

#include <string>

#include "attention/methods/far_key_attention.h"

namespace focus {

/// MoBA, mixture of block attention (Lu et al. 2025, section 2.2, equations 4 to 6), without training: each query head
/// attends its own block and, of the k blocks it may have in all, the k - 1 earlier ones whose mean key scores highest
/// with it. Blocks that window and sinks cover already are not chosen again; --window 0 --sinks 0 is the paper's bare
/// form. Up to k * block keys a query beside window and sinks; choosing scores t / block means.
class Moba : public FarKeyAttention {
 public:
  Moba(const NearKeys& near, int64_t block, int64_t top_blocks);
  std::string name() const override { return "moba"; }

 protected:
  Chooser chooser(const DocumentView& document) override;

 private:
  int64_t block_;
  int64_t top_blocks_;
};

}  // namespace focus
