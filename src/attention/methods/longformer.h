#pragma once

#include <optional>
#include <string>

#include "attention/methods/far_key_attention.h"

namespace focus {

/// Longformer (Beltagy, Peters, Cohan 2020, section 3.1) in its causal form: a sliding window, dilated or not, and
/// global tokens. Query i attends the keys at distances 0, d, 2d, ..., w*d, where d is the dilation (1 without); of the
/// global tokens, which all later tokens attend and which attend all earlier ones, the first are the sinks, others are
/// every `global_every`-th. The paper's own projections for global tokens start as copies of the others, which is what
/// they stay here. Up to w + 1 + sinks + t / global_every keys a query.
class Longformer : public FarKeyAttention {
 public:
  struct Config {
    int64_t dilation = 1;
    std::optional<int64_t> dilated_heads;  ///< The first KV heads alone are dilated; absent: all.
    int64_t global_every = 0;              ///< 0: no global tokens but the sinks.
  };
  Longformer(const NearKeys& near, const Config& config);
  std::string name() const override { return "longformer"; }

 protected:
  Chooser chooser(const DocumentView& document) override;

 private:
  int64_t window_;
  Config config_;
};

}  // namespace focus
