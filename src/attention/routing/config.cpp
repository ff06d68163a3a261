#include "attention/routing/config.h"

#include <cmath>

#include "attention/routing/symmetric.h"
#include "base/error.h"

namespace focus {

RoutingConfig RoutingConfig::symmetric_defaults() {
  RoutingConfig config;
  config.symmetric = true;
  config.groups = 8;
  config.groups_per_token = 1;
  return config;
}

void RoutingConfig::validate() const {
  if (groups < 1 || groups > kMaxGroups) fail_usage("--groups {}: must be 1 to {}", groups, kMaxGroups);
  if (groups_per_token < 1) fail_usage("--groups-per-token {}: must be at least 1", groups_per_token);
  if (groups_per_token > groups) fail_usage("--groups-per-token {}: at most --groups {}", groups_per_token, groups);
  if (window < 0) fail_usage("--window {}: must be 0 or more", window);
  if (sinks < 0) fail_usage("--sinks {}: must be 0 or more", sinks);
  if (group_dim < 1 || group_dim > 65536) fail_usage("--group-dim {}: must be 1 to 65536", group_dim);
  if (!(tau > 0) || !std::isfinite(tau)) fail_usage("--tau {}: must be a positive number", tau);
  if (sinkhorn_iters < 1) fail_usage("--sinkhorn-iters {}: must be at least 1", sinkhorn_iters);
  if (symmetric && global_group) fail_usage("--global-group: not with --symmetric");
  if (routing == RoutingMode::kPaper && !symmetric) fail_usage("--routing paper: needs --symmetric");
  if (symmetric && count_patterns(groups, groups_per_token) > kMaxGroups) {
    fail_usage("--symmetric: --groups {} with --groups-per-token {} give more than {} membership patterns", groups,
               groups_per_token, kMaxGroups);
  }
}

RoutingMode parse_routing_mode(const std::string& text) {
  if (text == "causal") return RoutingMode::kCausal;
  if (text == "paper") return RoutingMode::kPaper;
  fail_usage("--routing {}: must be causal or paper", text);
}

std::string to_string(RoutingMode mode) {
  return mode == RoutingMode::kPaper ? "paper" : "causal";
}

}  // namespace focus
