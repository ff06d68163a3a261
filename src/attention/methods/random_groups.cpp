#include "attention/methods/random_groups.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace focus {

namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014) over a running state.
uint64_t mix(uint64_t state, uint64_t value) {
  uint64_t x = (state ^ value) + 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Uniform in [0, n) out of 32 hashed bits; n is at most 4095, so the bias is below one in a million.
int64_t below(uint64_t hash, int64_t n) {
  return static_cast<int64_t>(((hash >> 32) * static_cast<uint64_t>(n)) >> 32);
}

}  // namespace

Routes RandomGroups::route(const AttentionInput& input, const at::Tensor& position_in_document) {
  const int64_t groups = config().groups;
  const int64_t probes = config().groups_per_token;
  const int64_t sets = config().shared ? 1 : input.k.size(1);
  const int64_t batch = position_in_document.size(0);
  const int64_t tokens = position_in_document.size(1);
  Routes routes{at::empty({batch, sets, tokens}, at::kInt), at::full({batch, sets, tokens, probes + 1}, -1, at::kInt)};
  const at::Tensor rows = position_in_document.contiguous();
  const int64_t* position = rows.const_data_ptr<int64_t>();
  int32_t* key_group = routes.key_group.data_ptr<int32_t>();
  int32_t* slot = routes.probes.data_ptr<int32_t>();
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t s = 0; s < sets; ++s) {
      const uint64_t set_key = mix(mix(seed_, static_cast<uint64_t>(input.layer)), static_cast<uint64_t>(s));
      for (int64_t t = 0; t < tokens; ++t, ++key_group, slot += probes + 1) {
        const int64_t at = position[b * tokens + t];
        if (at < 0) {
          *key_group = -1;
          continue;
        }
        const uint64_t key = mix(set_key, static_cast<uint64_t>(at));
        *key_group = at < config().sinks ? 0 : static_cast<int32_t>(1 + below(mix(key, 0), groups));
        slot[0] = 0;
        // Floyd's sample of `probes` different numbers out of `groups`.
        for (int64_t p = 0; p < probes; ++p) {
          const int64_t last = groups - probes + p;
          const auto drawn = static_cast<int32_t>(1 + below(mix(key, static_cast<uint64_t>(p + 1)), last + 1));
          const bool taken = std::find(slot + 1, slot + 1 + p, drawn) != slot + 1 + p;
          slot[1 + p] = taken ? static_cast<int32_t>(last + 1) : drawn;
        }
      }
    }
  }
  return routes;
}

}  // namespace focus
