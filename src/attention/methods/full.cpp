#include "attention/methods/full.h"

#include "attention/dense.h"
#include "attention/kv_cache.h"
#include "base/error.h"

namespace focus {

at::Tensor FullAttention::attend(const AttentionInput& input) {
  at::Tensor k = input.k;
  at::Tensor v = input.v;
  if (input.cache != nullptr) {
    auto* cache = dynamic_cast<KvCache*>(input.cache);
    require(cache != nullptr, "full attention was given the cache of another method");
    cache->append(k, v);
    k = cache->keys();
    v = cache->values();
  }
  AttentionParams params;
  params.document_start = input.document_start;
  params.layer_window = input.layer_window;
  params.scale = input.scale;
  params.softcap = input.softcap;
  const PairCount count = count_pairs(input.q.size(0), input.q.size(2), k.size(2), params);
  pairs_.kept += count.kept;
  pairs_.causal += count.causal;
  const HeadScale* scale = find_scale(scales_, input.layer);
  if (scale == nullptr) return dense_attention(input.q, k, v, params);
  return scale_outputs(dense_attention(scale_queries(input.q, *scale), k, v, params), *scale);
}

std::unique_ptr<LayerCache> FullAttention::make_cache(int64_t /*layer*/, int64_t batch, int64_t capacity) const {
  return std::make_unique<KvCache>(batch, capacity);
}

}  // namespace focus
