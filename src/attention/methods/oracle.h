#pragma once

#include <optional>
#include <string>

#include "attention/methods/far_key_attention.h"

namespace focus {

/// The upper bound of choosing keys, no method to use: looks at every key and keeps, for each query head, the far keys
/// with the highest exact scores. Either a fixed number (top-k), or the fewest that, together with window and sinks,
/// hold a share of the exact attention (top-p, as in Lin et al. 2025, "Twilight", section 3). Pairs count the keys
/// kept.
class Oracle : public FarKeyAttention {
 public:
  /// top_mass in [0, 1] in place of top_keys.
  Oracle(const NearKeys& near, int64_t top_keys, std::optional<double> top_mass);
  std::string name() const override { return "oracle"; }

 protected:
  Chooser chooser(const DocumentView& document) override;

 private:
  int64_t top_keys_;
  std::optional<double> top_mass_;
};

}  // namespace focus
