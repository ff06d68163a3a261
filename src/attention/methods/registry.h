#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/head_scales.h"
#include "attention/method.h"
#include "attention/routing/router.h"
#include "base/baseline_options.h"

namespace focus {

/// What a method may need to be made.
struct MethodOptions {
  RoutingConfig routing;                               ///< For the methods without a trained router.
  std::shared_ptr<const Router> router;                ///< For "focus"; its own configuration holds.
  std::shared_ptr<const HeadScales> scales = nullptr;  ///< Of "focus" and "full": trained scalars of their heads.
  uint64_t seed = 0;                                   ///< For methods that draw at random.
  BaselineOptions baselines;  ///< For the comparison methods; window and sinks come from `routing`.
};

/// Names for --method, in the order of the registry.
std::vector<std::string> method_names();

/// The method of that name. Throws UsageError for an unknown name (with the nearest known one and the list), for
/// "focus" without a router, and for a bad configuration.
std::unique_ptr<AttentionMethod> make_method(const std::string& name, const MethodOptions& options);

}  // namespace focus
