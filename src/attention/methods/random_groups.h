#pragma once

#include <cstdint>
#include <string>

#include "attention/methods/list_attention.h"

namespace focus {

/// Lists drawn at random instead of learned: K lists of which a query probes P, beside the window and the sinks. Every
/// draw is a hash of (seed, layer, list set, position in the document), so it is causal and the same with and without a
/// cache.
class RandomGroups : public ListAttention {
 public:
  RandomGroups(const RoutingConfig& config, uint64_t seed) : ListAttention(config), seed_(seed) {}
  std::string name() const override { return "random-groups"; }

 protected:
  Routes route(const AttentionInput& input, const at::Tensor& position_in_document) override;
  int64_t lists() const override { return config().groups; }

 private:
  uint64_t seed_;
};

}  // namespace focus
