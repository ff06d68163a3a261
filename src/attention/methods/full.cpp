#include "attention/methods/full.h"

#include <algorithm>

#include "attention/dense.h"
#include "attention/kv_cache.h"
#include "base/error.h"

namespace focus {

namespace {

/// Pairs of one row at position i with keys from `start` on, with a layer window W (0: none).
int64_t row_pairs(int64_t i, int64_t start, int64_t window) {
  const int64_t all = std::max<int64_t>(0, i - start + 1);
  return window > 0 ? std::min(all, window) : all;
}

PairCount dense_pairs(int64_t batch, int64_t tq, int64_t tk, const AttentionParams& params) {
  PairCount count;
  at::Tensor starts;
  if (params.document_start.has_value()) starts = params.document_start->to(at::kCPU, at::kLong).contiguous();
  for (int64_t b = 0; b < (starts.defined() ? batch : 1); ++b) {
    const int64_t* start = starts.defined() ? starts.const_data_ptr<int64_t>() + b * tk : nullptr;
    for (int64_t i = tk - tq; i < tk; ++i) {
      count.kept += row_pairs(i, start != nullptr ? start[i] : 0, params.layer_window);
      count.causal += row_pairs(i, start != nullptr ? start[i] : 0, 0);
    }
  }
  if (!starts.defined()) {
    count.kept *= batch;
    count.causal *= batch;
  }
  return count;
}

}  // namespace

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
  const PairCount count = dense_pairs(input.q.size(0), input.q.size(2), k.size(2), params);
  pairs_.kept += count.kept;
  pairs_.causal += count.causal;
  return dense_attention(input.q, k, v, params);
}

std::unique_ptr<LayerCache> FullAttention::make_cache(int64_t /*layer*/, int64_t batch, int64_t capacity) const {
  return std::make_unique<KvCache>(batch, capacity);
}

}  // namespace focus
