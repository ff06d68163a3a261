#include "attention/methods/registry.h"

#include <fmt/ranges.h>

#include "attention/methods/bigbird.h"
#include "attention/methods/focus_attention.h"
#include "attention/methods/full.h"
#include "attention/methods/linformer.h"
#include "attention/methods/longformer.h"
#include "attention/methods/magicpig.h"
#include "attention/methods/moba.h"
#include "attention/methods/nsa_blocks.h"
#include "attention/methods/oracle.h"
#include "attention/methods/performer.h"
#include "attention/methods/random_groups.h"
#include "attention/methods/routing_transformer.h"
#include "attention/methods/sparq.h"
#include "attention/methods/window.h"
#include "base/error.h"

namespace focus {

namespace {

using Made = std::unique_ptr<AttentionMethod>;

Made make_focus(const MethodOptions& options) {
  if (options.router == nullptr) fail_usage("--method focus: needs a trained router, give --adapter");
  return std::make_unique<FocusAttention>(options.router, options.scales);
}

NearKeys near_keys(const MethodOptions& options) {
  return {.window = options.routing.window, .sinks = options.routing.sinks};
}

Made make_longformer(const MethodOptions& options) {
  const BaselineOptions& o = options.baselines;
  return std::make_unique<Longformer>(
      near_keys(options),
      Longformer::Config{.dilation = o.dilation, .dilated_heads = o.dilated_heads, .global_every = o.global_every});
}

Made make_bigbird(const MethodOptions& options) {
  const BaselineOptions& o = options.baselines;
  return std::make_unique<BigBird>(near_keys(options), o.block_size, o.random_blocks, options.seed);
}

Made make_oracle(const MethodOptions& options) {
  return std::make_unique<Oracle>(near_keys(options), options.baselines.top_keys, options.baselines.top_mass);
}

Made make_moba(const MethodOptions& options) {
  return std::make_unique<Moba>(near_keys(options), options.baselines.block_size, options.baselines.top_blocks);
}

Made make_nsa_blocks(const MethodOptions& options) {
  return std::make_unique<NsaBlocks>(near_keys(options), options.baselines.block_size, options.baselines.top_blocks);
}

Made make_sparq(const MethodOptions& options) {
  const BaselineOptions& o = options.baselines;
  return std::make_unique<Sparq>(near_keys(options), o.query_components, o.top_keys, o.mean_reallocation);
}

Made make_magicpig(const MethodOptions& options) {
  const BaselineOptions& o = options.baselines;
  return std::make_unique<MagicPig>(near_keys(options), o.hash_bits, o.hash_tables, options.seed);
}

Made make_performer(const MethodOptions& options) {
  return std::make_unique<Performer>(options.baselines.features, options.seed);
}

template <bool kCausal>
Made make_routing_transformer(const MethodOptions& options) {
  const BaselineOptions& o = options.baselines;
  return std::make_unique<RoutingTransformer>(near_keys(options), o.clusters, o.cluster_keys, kCausal);
}

Made make_linformer(const MethodOptions& options) {
  return std::make_unique<Linformer>(options.baselines.pool);
}

Made make_causal_linformer(const MethodOptions& options) {
  return std::make_unique<CausalLinformer>(near_keys(options), options.baselines.pool);
}

struct Entry {
  const char* name;
  Made (*make)(const MethodOptions&);
};

constexpr Entry kMethods[] = {
    {"focus", make_focus},
    {"full", [](const MethodOptions& o) -> Made { return std::make_unique<FullAttention>(o.scales); }},
    {"window", [](const MethodOptions& o) -> Made { return std::make_unique<WindowAttention>(o.routing); }},
    {"random-groups", [](const MethodOptions& o) -> Made { return std::make_unique<RandomGroups>(o.routing, o.seed); }},
    {"longformer", make_longformer},
    {"bigbird", make_bigbird},
    {"oracle", make_oracle},
    {"moba", make_moba},
    {"nsa-blocks", make_nsa_blocks},
    {"sparq", make_sparq},
    {"magicpig", make_magicpig},
    {"performer", make_performer},
    {"routing-transformer", make_routing_transformer<false>},
    {"routing-transformer-causal", make_routing_transformer<true>},
    {"linformer", make_linformer},
    {"linformer-causal", make_causal_linformer},
};

}  // namespace

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kMethods) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<AttentionMethod> make_method(const std::string& name, const MethodOptions& options) {
  for (const Entry& entry : kMethods) {
    if (name == entry.name) return entry.make(options);
  }
  const std::string nearest = nearest_name(name, method_names());
  fail_usage("--method {}: no such method{}; known: {}", name, nearest.empty() ? "" : ", did you mean " + nearest + "?",
             fmt::join(method_names(), ", "));
}

}  // namespace focus
