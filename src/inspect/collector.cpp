#include "inspect/collector.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "attention/routing/formulas.h"
#include "base/error.h"

namespace focus {

namespace {

// Uniform below n out of 32 random bits; the standard library's distributions differ between platforms.
int64_t below(std::mt19937_64& random, int64_t n) {
  return static_cast<int64_t>(((random() >> 32) * static_cast<uint64_t>(n)) >> 32);
}

std::mt19937_64 stream(uint64_t seed, int64_t window, int64_t layer, int64_t set) {
  std::seed_seq sequence{static_cast<int64_t>(seed & 0xffffffffu), static_cast<int64_t>(seed >> 32), window, layer,
                         set};
  return std::mt19937_64(sequence);
}

// Lists of the tokens beyond the sinks in another order.
at::Tensor shuffle_lists(const at::Tensor& key_group, int64_t sinks, uint64_t seed, int64_t window, int64_t layer) {
  at::Tensor result = key_group.clone();
  const int64_t tokens = result.size(1);
  for (int64_t s = 0; s < result.size(0); ++s) {
    std::mt19937_64 random = stream(seed, window, layer, s);
    int32_t* group = result.data_ptr<int32_t>() + s * tokens;
    for (int64_t t = tokens - 1; t > sinks; --t) std::swap(group[t], group[sinks + below(random, t - sinks + 1)]);
  }
  return result;
}

// One row out of each of n equal parts of the window.
std::vector<int64_t> sample_rows(int64_t tokens, int64_t n, uint64_t seed, int64_t window, int64_t layer) {
  n = std::min(n, tokens);
  std::mt19937_64 random = stream(seed, window, layer, -1);
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < n; ++r) {
    const int64_t begin = r * tokens / n;
    rows.push_back(begin + below(random, (r + 1) * tokens / n - begin));
  }
  return rows;
}

}  // namespace

/// Soft choices of lists and the vectors that affinity compares, of one window.
struct InspectAttention::SoftChoice {
  at::Tensor log_probabilities;  // [Hg, T, E]
  at::Tensor query, key;         // [Hg, T, d], unit rows
};

InspectAttention::SoftChoice InspectAttention::soft_choice(int64_t layer, const at::Tensor& hidden) const {
  const RoutingConfig& config = router().config();
  const LayerRouter& weights = router().layers().at(layer);
  SoftChoice result;
  if (config.symmetric) {
    const at::Tensor scores = symmetric_scores(hidden, weights.projection, weights.centroids, config.tau);
    result.log_probabilities = at::log_softmax(scores + weights.potentials.unsqueeze(-2), -1);
    const at::Tensor memberships = result.log_probabilities.exp();
    result.query = result.key = memberships / at::linalg_vector_norm(memberships, 2, at::IntArrayRef{-1}, true);
    return result;
  }
  const at::Tensor key = key_features(hidden, weights.key_projection, weights.key_bias, config.tau);
  result.log_probabilities =
      at::log_softmax(key_list_scores(key, weights.codebook, weights.potentials, config.tau), -1);
  result.key = key.narrow(-1, 0, config.group_dim).contiguous();
  result.query = query_features(hidden, weights.query_projection).narrow(-1, 0, config.group_dim).contiguous();
  return result;
}

InspectAttention::InspectAttention(std::shared_ptr<const Router> router, CollectorOptions options,
                                   std::shared_ptr<const HeadScales> scales)
    : FocusAttention(std::move(router), std::move(scales)), options_(std::move(options)) {
  const auto sets = static_cast<size_t>(this->router().head_sets());
  const auto ids = static_cast<size_t>(this->router().lists() + 1);
  for (const auto& [layer, weights] : this->router().layers()) {
    LayerRecord record;
    record.layer = layer;
    record.lists.resize(sets);
    record.shuffled.resize(sets);
    record.confidence.assign(sets, std::vector<double>(ids));
    record.shuffled_confidence = record.confidence;
    record.choice_entropy.resize(sets);
    record.kept_by_length.resize(options_.lengths.size());
    record.causal_by_length.resize(options_.lengths.size());
    layers_.push_back(std::move(record));
  }
}

Routes InspectAttention::route(const AttentionInput& input, const at::Tensor& position_in_document) {
  routes_ = FocusAttention::route(input, position_in_document);
  return routes_;
}

at::Tensor InspectAttention::attend(const AttentionInput& input) {
  require(input.cache == nullptr && input.q.size(0) == 1 && !input.document_start.has_value(),
          "inspection takes one text at a time, without a cache");
  const at::Tensor out = FocusAttention::attend(input);
  AttentionInput seen = input;
  if (const HeadScale* scale = find_scale(scales(), input.layer)) seen.q = scale_queries(input.q, *scale);
  for (LayerRecord& record : layers_) {
    if (record.layer == input.layer) observe(seen, record);
  }
  return out;
}

void InspectAttention::end_window(int64_t tokens) {
  ++window_;
  offset_ += tokens;
}

void InspectAttention::observe(const AttentionInput& input, LayerRecord& record) {
  const at::NoGradGuard no_grad;
  WindowLists lists;
  lists.window = config().window;
  lists.sinks = config().sinks;
  lists.key_group = routes_.key_group.to(at::kCPU)[0].contiguous();
  lists.probes = routes_.probes.to(at::kCPU)[0].contiguous();
  lists.shuffled = shuffle_lists(lists.key_group, lists.sinks, options_.seed, window_, record.layer);
  const int64_t tokens = lists.key_group.size(1);
  std::vector<int64_t> lengths;
  std::copy_if(options_.lengths.begin(), options_.lengths.end(), std::back_inserter(lengths),
               [&](int64_t length) { return length <= tokens; });
  const size_t inside = lengths.size();
  lengths.push_back(tokens);
  const std::vector<int64_t> kept = pairs_by_length(lists, input.layer_window, lengths);
  const auto causal = [&](int64_t length) { return length * (length + 1) / 2 * lists.key_group.size(0); };
  for (size_t x = 0; x < inside; ++x) {
    record.kept_by_length[x] += kept[x];
    record.causal_by_length[x] += causal(lengths[x]);
  }
  record.pairs.kept += kept.back();
  record.pairs.causal += causal(tokens);
  const SoftChoice soft = soft_choice(record.layer, input.hidden[0].to(at::kCPU, at::kFloat));
  observe_lists(soft, lists, record);
  observe_mass(input, soft, lists, record);
  if (window_ == options_.excerpt_window && options_.excerpt_tokens > 0) keep_excerpt(input, lists, record);
}

void InspectAttention::observe_lists(const SoftChoice& soft, const WindowLists& lists, LayerRecord& record) {
  const int64_t sets = lists.key_group.size(0);
  const int64_t tokens = lists.key_group.size(1);
  const at::Tensor probability = soft.log_probabilities.exp().contiguous();
  const at::Tensor entropy =
      (probability * soft.log_probabilities).sum(-1).mul_(-1 / std::log(2.0)).to(at::kFloat).contiguous();  // [Hg, T]
  const int64_t entries = probability.size(2);
  const PatternTable* patterns = router().patterns();
  const int32_t first_entry = config().global_group ? 0 : 1;  // id of entry 0
  for (int64_t s = 0; s < sets; ++s) {
    const auto set = static_cast<size_t>(s);
    const int32_t* group = lists.key_group.const_data_ptr<int32_t>() + s * tokens;
    const int32_t* shuffled = lists.shuffled.const_data_ptr<int32_t>() + s * tokens;
    const float* p = probability.const_data_ptr<float>() + s * tokens * entries;
    // Probability that a token's soft choice gives to a list: of a pattern, to its groups together.
    const auto chosen = [&](int64_t t, int32_t list) {
      const float* row = p + t * entries;
      if (patterns == nullptr) return static_cast<double>(row[list - first_entry]);
      double sum = 0;
      for (const int32_t g : patterns->members(list - 1)) sum += row[g];
      return sum;
    };
    for (int64_t t = 0; t < tokens; ++t) {
      const bool routed = t >= lists.sinks && group[t] >= 0;
      record.lists[set].push_back(static_cast<int16_t>(routed ? group[t] : -1));
      record.shuffled[set].push_back(static_cast<int16_t>(routed ? shuffled[t] : -1));
      if (!routed) continue;
      record.confidence[set][static_cast<size_t>(group[t])] += chosen(t, group[t]);
      record.shuffled_confidence[set][static_cast<size_t>(shuffled[t])] += chosen(t, shuffled[t]);
      record.choice_entropy[set] += entropy.const_data_ptr<float>()[s * tokens + t];
    }
  }
}

void InspectAttention::observe_mass(const AttentionInput& input, const SoftChoice& soft, const WindowLists& lists,
                                    LayerRecord& record) {
  const std::vector<int64_t> rows =
      sample_rows(lists.key_group.size(1), options_.query_rows, options_.seed, window_, record.layer);
  const at::Tensor probabilities = attention_rows(input, at::tensor(rows, at::kLong));
  std::vector<FarPair> far;
  record.mass += measure_mass(lists, rows, probabilities, input.layer_window, far);
  const int64_t tokens = soft.query.size(1);
  const int64_t dim = soft.query.size(2);
  for (FarPair& pair : far) {
    const float* q = soft.query.const_data_ptr<float>() + (pair.set * tokens + pair.query) * dim;
    const float* k = soft.key.const_data_ptr<float>() + (pair.set * tokens + pair.key) * dim;
    record.affinity.push_back(std::inner_product(q, q + dim, k, 0.0F));
    pair.query += offset_;
    pair.key += offset_;
    record.far.push_back(pair);
  }
}

void InspectAttention::keep_excerpt(const AttentionInput& input, const WindowLists& lists, LayerRecord& record) const {
  const int64_t sets = lists.key_group.size(0);
  const int64_t tokens = lists.key_group.size(1);
  const int64_t slots = lists.probes.size(2);
  const int64_t n = std::min(options_.excerpt_tokens, tokens);
  AttentionInput part = input;
  part.q = input.q.narrow(2, 0, n);
  part.k = input.k.narrow(2, 0, n);
  const at::Tensor dense = attention_rows(part, at::arange(n, at::kLong)).flatten(0, 1);  // [Hq, N, N]
  AttentionParams params;
  params.window = lists.window;
  params.layer_window = input.layer_window;
  params.key_group = lists.key_group.narrow(1, 0, n).unsqueeze(0);
  params.probes = lists.probes.narrow(1, 0, n).unsqueeze(0);
  const at::Tensor allowed = allowed_mask(1, n, n, params)[0].to(at::kFloat);            // [Hg, N, N]
  at::Tensor mass = dense.view({sets, -1, n, n}) * allowed.unsqueeze(1);                 // [Hg, heads, N, N]
  mass = (mass / mass.sum(-1, /*keepdim=*/true).clamp_min(1e-20)).mean(1).contiguous();  // [Hg, N, N]
  const int64_t best = std::min(options_.excerpt_keys, n);
  const auto [top_mass, top_key] = at::topk(mass, best, -1);
  ExcerptLayer& excerpt = record.excerpt;
  excerpt.key_group.resize(static_cast<size_t>(sets));
  excerpt.probes.resize(static_cast<size_t>(sets));
  excerpt.keys.resize(static_cast<size_t>(sets));
  const at::Tensor values = top_mass.contiguous();
  const at::Tensor keys = top_key.contiguous();
  for (int64_t s = 0; s < sets; ++s) {
    const auto set = static_cast<size_t>(s);
    for (int64_t t = 0; t < n; ++t) {
      excerpt.key_group[set].push_back(lists.key_group.const_data_ptr<int32_t>()[s * tokens + t]);
      const int32_t* probes = lists.probes.const_data_ptr<int32_t>() + (s * tokens + t) * slots;
      std::vector<int32_t>& probed = excerpt.probes[set].emplace_back();
      std::copy_if(probes + 1, probes + slots, std::back_inserter(probed), [](int32_t id) { return id >= 0; });
      std::vector<ExcerptLayer::Key>& row = excerpt.keys[set].emplace_back();
      for (int64_t x = 0; x < best; ++x) {
        const int64_t at = (s * n + t) * best + x;
        const float share = values.const_data_ptr<float>()[at];
        if (share > 0) row.push_back({static_cast<int32_t>(keys.const_data_ptr<int64_t>()[at]), share});
      }
    }
  }
}

}  // namespace focus
