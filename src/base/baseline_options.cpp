#include "base/baseline_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace focus {

namespace {

struct Owned {
  std::string flag;
  std::vector<std::string> methods;
};

const std::vector<Owned>& owned_flags() {
  static const std::vector<Owned> kOwned = {
      {"dilation", {"longformer"}},
      {"dilated-heads", {"longformer"}},
      {"global-every", {"longformer"}},
      {"block-size", {"bigbird", "moba", "nsa-blocks"}},
      {"random-blocks", {"bigbird"}},
      {"top-blocks", {"moba", "nsa-blocks"}},
      {"top-keys", {"oracle", "sparq"}},
      {"top-mass", {"oracle"}},
      {"query-components", {"sparq"}},
      {"mean-reallocation", {"sparq"}},
      {"hash-bits", {"magicpig"}},
      {"hash-tables", {"magicpig"}},
      {"features", {"performer"}},
      {"clusters", {"routing-transformer", "routing-transformer-causal"}},
      {"cluster-keys", {"routing-transformer", "routing-transformer-causal"}},
      {"pool", {"linformer", "linformer-causal"}},
  };
  return kOwned;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Owned& owned(const std::string& flag) {
  const auto& all = owned_flags();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Owned& entry) { return entry.flag == flag; });
  require(found != all.end(), "--{}: no flag of a comparison method", flag);
  return *found;
}

}  // namespace

void BaselineOptions::declare(OptionTable& table) {
  const auto add = [&table](const std::string& flag, auto* target, const std::string& help) -> Option& {
    return table.add(flag, target, fmt::format("{}: {}", fmt::join(owned(flag).methods, ", "), help));
  };
  table.section("Comparison methods");
  add("dilation", &dilation, "distance between the keys of the window").at_least(1);
  add("dilated-heads", &dilated_heads, "dilate the window of the first KV heads only").at_least(0).default_text("all");
  add("global-every", &global_every, "every N-th token attends and is attended by all, 0 for none").at_least(0);
  add("block-size", &block_size, "tokens a block").at_least(1);
  add("random-blocks", &random_blocks, "key blocks drawn for each block of queries").at_least(0);
  add("top-blocks", &top_blocks, "key blocks that a query chooses (of moba its own is one)").at_least(1);
  add("top-keys", &top_keys, "keys that a query chooses beside window and sinks").at_least(0);
  add("top-mass", &top_mass, "keep the fewest keys that hold this share of the attention")
      .at_least(0)
      .at_most(1)
      .default_text("--top-keys instead");
  add("query-components", &query_components, "components of a query that score the keys").at_least(1);
  add("mean-reallocation", &mean_reallocation, "let the mean value stand in for the keys left out");
  add("hash-bits", &hash_bits, "bits a hash").at_least(1).at_most(24);
  add("hash-tables", &hash_tables, "hash tables; a key is kept that collides in two").at_least(2);
  add("features", &features, "random features").at_least(1);
  add("clusters", &clusters, "clusters a KV head").at_least(1);
  add("cluster-keys", &cluster_keys, "tokens that a cluster takes").at_least(1);
  add("pool", &pool, "neighbouring tokens averaged into one key").at_least(1);
}

void BaselineOptions::check(const OptionTable& table, const std::string& method) const {
  for (const Owned& entry : owned_flags()) {
    if (table.changed(entry.flag) && !contains(entry.methods, method)) {
      fail_usage("--{} belongs to --method {}{}", entry.flag, fmt::join(entry.methods, " or "),
                 method.empty() ? "" : ", not to " + method);
    }
  }
  if (top_mass && table.changed("top-keys")) fail_usage("--top-keys and --top-mass exclude each other");
}

}  // namespace focus
