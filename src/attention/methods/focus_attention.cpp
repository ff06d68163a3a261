#include "attention/methods/focus_attention.h"

#include <algorithm>

#include "base/error.h"

namespace focus {

namespace {

const RoutingConfig& config_of(const std::shared_ptr<const Router>& router) {
  require(router != nullptr, "method focus: it needs a router");
  return router->config();
}

}  // namespace

FocusAttention::FocusAttention(std::shared_ptr<const Router> router, std::shared_ptr<const HeadScales> scales)
    : ListAttention(config_of(router)), router_(std::move(router)), scales_(std::move(scales)) {}

at::Tensor FocusAttention::attend(const AttentionInput& input) {
  const HeadScale* scale = find_scale(scales_, input.layer);
  if (scale == nullptr) return ListAttention::attend(input);
  AttentionInput scaled = input;
  scaled.q = scale_queries(input.q, *scale);
  return scale_outputs(ListAttention::attend(scaled), *scale);
}

Routes FocusAttention::route(const AttentionInput& input, const at::Tensor& position_in_document) {
  require(router_->head_sets() == 1 || router_->head_sets() == input.k.size(1),
          "method focus: the router has {} list sets, layer {} has {} KV heads", router_->head_sets(), input.layer,
          input.k.size(1));
  return router_->route(input.layer, input.hidden, position_in_document);
}

Dominance FocusAttention::dominance() const {
  const PatternTable* patterns = router_->patterns();
  if (patterns == nullptr) return ListAttention::dominance();
  Dominance result;
  for (const auto& [layer, counts] : usage()) {
    for (const auto& set : counts) {
      std::vector<int64_t> members(static_cast<size_t>(patterns->groups()));
      int64_t total = 0;
      for (int64_t p = 0; p < patterns->patterns(); ++p) {
        const int64_t tokens = set[static_cast<size_t>(p + 1)];
        for (const int32_t g : patterns->members(p)) members[static_cast<size_t>(g)] += tokens;
        total += tokens * patterns->groups_per_token();
      }
      if (total == 0) continue;
      const auto largest = *std::max_element(members.begin(), members.end());
      double& share = result.largest_share[layer];
      share = std::max(share, static_cast<double>(largest) / static_cast<double>(total));
      result.unused_lists[layer] += std::count(members.begin(), members.end(), int64_t{0});
    }
  }
  return result;
}

}  // namespace focus
