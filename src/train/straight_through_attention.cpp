#include "train/straight_through_attention.h"

#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

#include "attention/routing/formulas.h"
#include "base/error.h"
#include "train/straight_through.h"

namespace focus {

StraightThroughAttention::StraightThroughAttention(std::shared_ptr<const Router> router,
                                                   std::shared_ptr<const HeadScales> scales,
                                                   std::map<int64_t, at::Tensor> codebooks, double sharpness)
    : FocusAttention(std::move(router), std::move(scales)), codebooks_(std::move(codebooks)), sharpness_(sharpness) {
  require(codebooks_.empty() || !config().symmetric,
          "straight-through training is for lists and probes, not for the symmetric form");
  for (const auto& [layer, codebook] : codebooks_) {
    require(this->router().has_layer(layer), "straight-through training: the router has no layer {}", layer);
  }
}

Routes StraightThroughAttention::route(const AttentionInput& input, const at::Tensor& position_in_document) {
  if (collecting_) {
    const at::NoGradGuard no_grad;
    const LayerRouter& own = router().layers().at(input.layer);
    const at::Tensor hidden = input.hidden.detach().to(at::kCPU, at::kFloat).flatten(0, 1);
    features_[input.layer].push_back(key_features(hidden, own.key_projection, own.key_bias, config().tau));
  }
  return FocusAttention::route(input, position_in_document);
}

std::map<int64_t, at::Tensor> StraightThroughAttention::take_features() {
  collecting_ = false;
  std::map<int64_t, at::Tensor> joined;
  for (const auto& [layer, parts] : features_) joined[layer] = at::cat(parts, 1);
  features_.clear();
  return joined;
}

at::Tensor StraightThroughAttention::attend_pairs(const AttentionInput& input, const at::Tensor& k, const at::Tensor& v,
                                                  const AttentionParams& params) {
  const auto trained = codebooks_.find(input.layer);
  if (!at::GradMode::is_enabled() || trained == codebooks_.end()) {
    return FocusAttention::attend_pairs(input, k, v, params);
  }
  const RoutingConfig& routing = config();
  const LayerRouter& own = router().layers().at(input.layer);
  const at::Device device = input.q.device();
  at::Tensor queries, keys;  // [B, Hg, T, d_g + 1]
  {
    const at::NoGradGuard no_grad;
    const at::Tensor hidden = input.hidden.detach().to(at::kFloat);
    queries = query_features(hidden, own.query_projection.to(device));
    keys = key_features(hidden, own.key_projection.to(device), own.key_bias.to(device), routing.tau);
  }
  const at::Tensor codebook = trained->second.to(device);
  const at::Tensor membership =
      (key_list_scores(keys, codebook, own.potentials.to(device), routing.tau) * sharpness_).softmax(-1);
  // The global entry is probed by every query; the groups compete.
  const int64_t global = routing.global_group ? 1 : 0;
  const at::Tensor all_probes = probe_scores(queries, codebook, routing.tau);  // [B, Hg, T, E]
  at::Tensor probed =
      soft_probes(all_probes.narrow(-1, global, routing.groups), router().probes(input.layer), sharpness_);
  if (global > 0) probed = at::cat({at::ones_like(probed.narrow(-1, 0, 1)), probed}, -1);
  const auto [out, lse] = attention(input.q, k, v, params);
  return straight_through(out, lse, input.q, k, v, probed, membership, params, routing.sinks);
}

at::Tensor StraightThroughAttention::entry_shares(int64_t layer) const {
  const auto& counts = usage().at(layer);
  const int64_t entries = config().entries(), first = config().global_group ? 0 : 1;  // id of entry 0
  at::Tensor shares = at::empty({std::ssize(counts), entries});
  for (int64_t set = 0; set < std::ssize(counts); ++set) {
    const auto& row = counts[static_cast<size_t>(set)];
    for (int64_t e = 0; e < entries; ++e) shares[set][e] = static_cast<double>(row[static_cast<size_t>(first + e)]);
  }
  return shares / shares.sum(-1, /*keepdim=*/true).clamp_min(1.0);
}

}  // namespace focus
