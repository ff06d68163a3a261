#include "models/model.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace focus {

namespace {

constexpr int64_t kFingerprintSamples = 256;

/// FNV-1a, 64 bits.
class Hash {
 public:
  void add(const void* data, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      state_ = (state_ ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ull;
    }
  }
  void add(const std::string& text) { add(text.c_str(), text.size() + 1); }
  void add(int64_t value) { add(&value, sizeof value); }
  std::string hex() const { return fmt::format("{:016x}", state_); }

 private:
  uint64_t state_ = 14695981039346656037ull;
};

}  // namespace

at::Tensor CausalLM::positions(const at::Tensor& ids, const ForwardOptions& options) const {
  require(ids.dim() == 2, "token ids must be [batch, tokens], not [{}]", fmt::join(ids.sizes(), ", "));
  if (options.cache != nullptr) {
    require(static_cast<int64_t>(options.cache->size()) == config().num_layers, "the cache has {} layers, the model {}",
            options.cache->size(), config().num_layers);
  }
  const int64_t past = options.cache != nullptr ? options.cache->front()->length() : 0;
  const int64_t batch = ids.size(0);
  const int64_t tokens = ids.size(1);
  at::Tensor positions = at::arange(past, past + tokens, ids.options().dtype(at::kLong)).unsqueeze(0);
  if (options.document_start.has_value()) {
    const at::Tensor& start = *options.document_start;
    require(start.dim() == 2 && start.size(0) == batch && start.size(1) == past + tokens,
            "document_start has shape [{}], expected [{}, {}]", fmt::join(start.sizes(), ", "), batch, past + tokens);
    positions = (positions - start.narrow(1, past, tokens)).clamp_min(0);
  }
  return positions.expand({batch, tokens});
}

at::Tensor CausalLM::forward(const at::Tensor& ids, AttentionMethod& method, const ForwardOptions& options) const {
  const at::Tensor where = positions(ids, options);
  const int64_t past = options.cache != nullptr ? options.cache->front()->length() : 0;
  try {
    at::Tensor x = embed(ids, where);
    for (int64_t layer = 0; layer < config().num_layers; ++layer) x = block(layer, x, where, method, options);
    return final_norm(x);
  } catch (...) {
    // A pass that failed half-way must not leave some layers longer than others.
    if (options.cache != nullptr) {
      for (const std::unique_ptr<LayerCache>& layer : *options.cache) layer->truncate(past);
    }
    throw;
  }
}

ModelCache CausalLM::make_cache(const AttentionMethod& method, int64_t batch, int64_t capacity,
                                std::optional<at::ScalarType> dtype) const {
  ModelCache cache;
  for (int64_t layer = 0; layer < config().num_layers; ++layer) {
    cache.push_back(method.make_cache(layer, batch, capacity));
    if (dtype.has_value()) cache.back()->store_as(*dtype);
  }
  return cache;
}

std::string model_fingerprint(const CausalLM& model) {
  const ModelConfig& config = model.config();
  Hash hash;
  hash.add(config.model_type);
  for (const int64_t size : {config.vocab_size, config.hidden_size, config.num_layers, config.num_heads,
                             config.num_kv_heads, config.head_dim}) {
    hash.add(size);
  }
  for (const auto& [name, tensor] : model.parameters()) {
    hash.add(name);
    for (const int64_t size : tensor.sizes()) hash.add(size);
    if (tensor.numel() == 0) continue;
    const int64_t step = std::max<int64_t>(1, tensor.numel() / kFingerprintSamples);
    const at::Tensor sample =
        tensor.detach().reshape(-1).slice(0, 0, tensor.numel(), step).to(at::kCPU).to(at::kBFloat16).contiguous();
    hash.add(sample.const_data_ptr(), sample.nbytes());
  }
  return hash.hex();
}

}  // namespace focus
