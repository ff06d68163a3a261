#include "attention/methods/list_attention.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "attention/decode.h"
#include "attention/dense.h"
#include "attention/methods/list_cache.h"
#include "base/error.h"

namespace focus {

double Dominance::largest() const {
  double result = 0;
  for (const auto& [layer, share] : largest_share) result = std::max(result, share);
  return result;
}

ListAttention::ListAttention(const RoutingConfig& config) : config_(config) {
  config_.validate();
}

std::unique_ptr<LayerCache> ListAttention::make_cache(int64_t layer, int64_t batch, int64_t capacity) const {
  require(is_causal(), "method {}: routing that reads the whole sequence cannot be used with a cache", name());
  if (!is_sparse(layer)) return std::make_unique<KvCache>(batch, capacity);
  return std::make_unique<ListCache>(batch, capacity);
}

namespace {

AttentionParams basic_params(const AttentionInput& input) {
  AttentionParams params;
  params.document_start = input.document_start;
  params.layer_window = input.layer_window;
  params.scale = input.scale;
  params.softcap = input.softcap;
  return params;
}

template <typename Cache>
Cache& cache_of(const AttentionInput& input, const std::string& name) {
  auto* cache = dynamic_cast<Cache*>(input.cache);
  require(cache != nullptr, "method {}: layer {} was given the cache of another method", name, input.layer);
  return *cache;
}

// Document starts of the new tokens, int64 [B, Tq].
at::Tensor new_starts(const AttentionInput& input, int64_t offset) {
  const int64_t batch = input.q.size(0);
  const int64_t tokens = input.q.size(2);
  if (!input.document_start.has_value()) return at::zeros({batch, tokens}, at::kLong);
  const at::Tensor& starts = *input.document_start;
  require(starts.dim() == 2 && starts.size(0) == batch && starts.size(1) == offset + tokens,
          "layer {}: document_start must be [{}, {}]", input.layer, batch, offset + tokens);
  return starts.slice(1, offset).to(at::kCPU, at::kLong).contiguous();
}

}  // namespace

at::Tensor ListAttention::attend_densely(const AttentionInput& input) {
  at::Tensor k = input.k;
  at::Tensor v = input.v;
  if (input.cache != nullptr) {
    auto& cache = cache_of<KvCache>(input, name());
    cache.append(k, v);
    k = cache.keys();
    v = cache.values();
  }
  const AttentionParams params = basic_params(input);
  const PairCount count = count_pairs(input.q.size(0), input.q.size(2), k.size(2), params);
  pairs_.kept += count.kept * head_sets();
  pairs_.causal += count.causal * head_sets();
  return dense_attention(input.q, k, v, params);
}

at::Tensor ListAttention::attend(const AttentionInput& input) {
  require(input.cache == nullptr || is_causal(),
          "method {}: routing that reads the whole sequence cannot be used with a cache", name());
  if (!is_sparse(input.layer)) return attend_densely(input);
  auto* cache = input.cache == nullptr ? nullptr : &cache_of<ListCache>(input, name());
  const int64_t offset = cache == nullptr ? 0 : cache->length();
  const int64_t tokens = input.q.size(2);
  const at::Tensor position = at::arange(offset, offset + tokens, at::kLong).unsqueeze(0) - new_starts(input, offset);
  const Routes routes = route(input, position);
  count_usage(input.layer, routes.key_group);
  if (cache != nullptr) cache->append(input.k, input.v, routes.key_group);
  if (cache != nullptr && tokens == 1 && input.q.device().is_cpu() && input.q.scalar_type() != at::kDouble) {
    return decode(input, *cache, routes);
  }
  AttentionParams params = basic_params(input);
  params.window = config_.window;
  params.key_group = (cache == nullptr ? routes.key_group : cache->key_group()).to(input.q.device());
  params.probes = routes.probes.to(input.q.device());
  // A cache of another dtype is read into that of the queries, one layer at a time.
  const at::Tensor k = cache == nullptr ? input.k : cache->keys().to(input.q.scalar_type());
  const at::Tensor v = cache == nullptr ? input.v : cache->values().to(input.q.scalar_type());
  const PairCount count = count_pairs(input.q.size(0), tokens, k.size(2), params);
  pairs_.kept += count.kept;
  pairs_.causal += count.causal;
  return attend_pairs(input, k, v, params);
}

at::Tensor ListAttention::attend_pairs(const AttentionInput& input, const at::Tensor& k, const at::Tensor& v,
                                       const AttentionParams& params) {
  return std::get<0>(attention(input.q, k, v, params));
}

at::Tensor ListAttention::decode(const AttentionInput& input, ListCache& cache, const Routes& routes) {
  const int64_t batch = input.q.size(0);
  const int64_t sets = routes.key_group.size(1);
  const int64_t slots = routes.probes.size(3);
  const int64_t i = cache.length() - 1;
  const at::Tensor starts = new_starts(input, i);
  const at::Tensor probe_rows = routes.probes.contiguous();
  const int32_t* probes = probe_rows.const_data_ptr<int32_t>();
  std::vector<KeyChoice> chosen(static_cast<size_t>(batch * sets));
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t start = starts.const_data_ptr<int64_t>()[b];
    const int64_t first = input.layer_window > 0 ? std::max(start, i - input.layer_window + 1) : start;
    const int64_t near = std::max(i - config_.window, first);
    for (int64_t s = 0; s < sets; ++s, probes += slots) {
      if (start > i) continue;
      KeyChoice& choice = chosen[static_cast<size_t>(b * sets + s)];
      choice = cache.choose(b, s, probes, slots, first, near);
      pairs_.kept += choice.count();
      pairs_.causal += i - start + 1;
    }
  }
  return decode_attention(input.q, cache.keys(), cache.values(), chosen, sets, input.scale, input.softcap);
}

void ListAttention::count_usage(int64_t layer, const at::Tensor& key_group) {
  if (lists() == 0) return;
  auto& counts = usage_[layer];
  const at::Tensor rows = key_group.to(at::kCPU).contiguous();
  const int32_t* data = rows.const_data_ptr<int32_t>();
  counts.resize(static_cast<size_t>(rows.size(1)));
  for (auto& set : counts) set.resize(static_cast<size_t>(lists() + 1));
  for (int64_t b = 0; b < rows.size(0); ++b) {
    for (auto& set : counts) {
      for (int64_t t = 0; t < rows.size(2); ++t, ++data) {
        if (*data >= 0) ++set[static_cast<size_t>(*data)];
      }
    }
  }
}

Dominance ListAttention::dominance() const {
  Dominance result;
  for (const auto& [layer, counts] : usage_) {
    double& share = result.largest_share[layer];
    int64_t& unused = result.unused_lists[layer];
    for (const auto& set : counts) {
      const auto total = std::accumulate(set.begin() + 1, set.end(), int64_t{0});
      if (total == 0) continue;
      const int64_t largest = *std::max_element(set.begin() + 1, set.end());
      share = std::max(share, static_cast<double>(largest) / static_cast<double>(total));
      unused += std::count(set.begin() + 1, set.end(), int64_t{0});
    }
  }
  return result;
}

}  // namespace focus
