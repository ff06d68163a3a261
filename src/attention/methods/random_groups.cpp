#include "attention/methods/random_groups.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "attention/methods/hash.h"

namespace focus {

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
        const std::vector<int64_t> drawn = sample(key, probes, groups);
        std::transform(drawn.begin(), drawn.end(), slot + 1, [](int64_t g) { return static_cast<int32_t>(g + 1); });
      }
    }
  }
  return routes;
}

}  // namespace focus
