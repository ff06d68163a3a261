#include "attention/methods/document_attention.h"

#include <algorithm>
#include <vector>

#include "attention/kv_cache.h"
#include "base/error.h"

namespace focus {

std::unique_ptr<LayerCache> DocumentAttention::make_cache(int64_t /*layer*/, int64_t batch, int64_t capacity) const {
  require(is_causal(), "method {}: it reads the whole sequence and cannot be used with a cache", name());
  return std::make_unique<KvCache>(batch, capacity);
}

void DocumentAttention::refuse_layer_window(const DocumentView& document) const {
  require(document.layer_window == 0 || document.k.size(1) <= document.layer_window,
          "method {}: layer {} has a sliding window of {} tokens, which the method cannot keep to over {}", name(),
          document.layer, document.layer_window, document.k.size(1));
}

at::Tensor DocumentAttention::attend(const AttentionInput& input) {
  at::Tensor k = input.k;
  at::Tensor v = input.v;
  if (input.cache != nullptr) {
    require(is_causal(), "method {}: it reads the whole sequence and cannot be used with a cache", name());
    auto* cache = dynamic_cast<KvCache*>(input.cache);
    require(cache != nullptr, "method {}: layer {} was given the cache of another method", name(), input.layer);
    cache->append(k, v);
    k = cache->keys();
    v = cache->values();
  }
  require(input.q.size(1) % k.size(1) == 0, "method {}: {} query heads do not divide among {} KV heads", name(),
          input.q.size(1), k.size(1));
  std::vector<at::Tensor> rows;
  rows.reserve(static_cast<size_t>(input.q.size(0)));
  for (int64_t b = 0; b < input.q.size(0); ++b) rows.push_back(attend_row(input, k, v, b));
  return at::stack(rows).to(input.q.scalar_type());
}

at::Tensor DocumentAttention::attend_row(const AttentionInput& input, const at::Tensor& k, const at::Tensor& v,
                                         int64_t row) {
  const at::ScalarType dtype = input.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t heads = input.q.size(1);
  const int64_t kv_heads = k.size(1);
  const int64_t tokens = input.q.size(2);
  const int64_t offset = k.size(2) - tokens;
  const at::Tensor queries = input.q[row].to(dtype).unflatten(0, {kv_heads, heads / kv_heads});
  at::Tensor starts = at::zeros({tokens}, at::kInt);
  if (input.document_start.has_value()) {
    require(input.document_start->size(1) == k.size(2), "method {}: document_start has {} positions, expected {}",
            name(), input.document_start->size(1), k.size(2));
    starts = (*input.document_start)[row].slice(0, offset).to(at::kCPU, at::kInt).contiguous();
  }
  const int32_t* start = starts.const_data_ptr<int32_t>();

  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < tokens;) {
    const bool padding = start[begin] > offset + begin;
    int64_t end = begin + 1;
    while (end < tokens && start[end] == start[begin] && (start[end] > offset + end) == padding) ++end;
    const at::Tensor part = queries.slice(2, begin, end);
    if (padding) {
      parts.push_back(at::zeros_like(part));
    } else {
      DocumentView document;
      document.layer = input.layer;
      document.q = part;
      document.k = k[row].slice(1, start[begin], offset + end).to(dtype);
      document.v = v[row].slice(1, start[begin], offset + end).to(dtype);
      document.scale = input.scale;
      document.softcap = input.softcap;
      document.layer_window = input.layer_window;
      parts.push_back(attend_document(document, pairs_.kept));
      const int64_t first = document.first();
      const int64_t last = document.k.size(1);
      pairs_.causal += heads * (last * (last + 1) - first * (first + 1)) / 2;
    }
    begin = end;
  }
  return at::cat(parts, 2).flatten(0, 1);
}

}  // namespace focus
