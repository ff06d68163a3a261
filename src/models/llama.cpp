#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/layers.h"
#include "models/loading.h"
#include "models/rope.h"

namespace focus {

namespace {

/// Weights of one block; biases are undefined where the configuration has none.
struct Layer {
  at::Tensor input_norm, post_norm;  // [d]
  at::Tensor wq, wk, wv, wo;         // [Hq * D, d], [Hkv * D, d] twice, [d, Hq * D]
  at::Tensor bq, bk, bv, bo;
  at::Tensor gate, up, down;  // [F, d] twice, [d, F]
  at::Tensor gate_bias, up_bias, down_bias;
};

/// LLaMA (Touvron et al. 2023): pre-norm blocks of rotary attention with grouped heads and a gated feed-forward layer.
class Llama : public CausalLM {
 public:
  explicit Llama(const LoadContext& context);

  const ModelConfig& config() const override { return config_; }
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions) const override;
  at::Tensor block(int64_t layer, const at::Tensor& x, const at::Tensor& positions, AttentionMethod& method,
                   const ForwardOptions& options) const override;
  at::Tensor final_norm(const at::Tensor& x) const override { return rms_norm(x, norm_, eps_); }
  at::Tensor logits(const at::Tensor& hidden) const override { return at::linear(hidden, head_); }
  const NamedParameters& parameters() const override { return parameters_; }
  std::string attention_module() const override { return "model.layers.{}.self_attn"; }

 private:
  at::Tensor attend(int64_t index, const at::Tensor& hidden, const at::Tensor& positions, AttentionMethod& method,
                    const ForwardOptions& options) const;

  ModelConfig config_;
  double eps_;
  double scale_;
  Activation activation_;
  Rope rope_;
  at::Tensor embedding_;  // [V, d]
  std::vector<Layer> layers_;
  at::Tensor norm_;  // [d]
  at::Tensor head_;  // [V, d], the embedding if tied
  NamedParameters parameters_;
};

ModelConfig read_config(const ConfigFields& fields, ModelConfig config) {
  config.vocab_size = fields.size("vocab_size");
  config.hidden_size = fields.size("hidden_size");
  config.num_layers = fields.size("num_hidden_layers");
  config.num_heads = fields.size("num_attention_heads");
  config.num_kv_heads = fields.size("num_key_value_heads", config.num_heads);
  config.max_positions = fields.size("max_position_embeddings", 2048);
  require(fields.has("head_dim") || config.hidden_size % config.num_heads == 0,
          "{}: hidden_size {} is not a multiple of num_attention_heads {} and there is no head_dim", fields.file(),
          config.hidden_size, config.num_heads);
  config.head_dim = fields.size("head_dim", std::max<int64_t>(1, config.hidden_size / config.num_heads));
  require(config.num_heads % config.num_kv_heads == 0,
          "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", fields.file(), config.num_heads,
          config.num_kv_heads);
  require(config.head_dim % 2 == 0, "{}: rotary embedding needs an even head_dim, not {}", fields.file(),
          config.head_dim);
  require(config.num_layers <= 10'000, "{}: num_hidden_layers is {}, expected at most 10000", fields.file(),
          config.num_layers);
  return config;
}

Llama::Llama(const LoadContext& context)
    : config_(read_config(context.config, context.common)),
      eps_(context.config.number("rms_norm_eps", 1e-6)),
      scale_(1.0 / std::sqrt(static_cast<double>(config_.head_dim))),
      activation_(find_activation(context.config.text("hidden_act", "silu"), context.config.file())),
      rope_(RopeConfig::read(context.config), config_.head_dim) {
  const ConfigFields& fields = context.config;
  WeightLoader& weights = context.weights;
  const int64_t d = config_.hidden_size;
  const int64_t q = config_.num_heads * config_.head_dim;
  const int64_t kv = config_.num_kv_heads * config_.head_dim;
  const int64_t inner = fields.size("intermediate_size");
  const bool attention_bias = fields.flag("attention_bias", false);
  const bool mlp_bias = fields.flag("mlp_bias", false);
  context.stored.ignore_suffix("rotary_emb.inv_freq");

  embedding_ = weights.take("model.embed_tokens.weight", {config_.vocab_size, d});
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const std::string base = fmt::format("model.layers.{}.", i);
    const std::string attention = base + "self_attn.";
    const std::string mlp = base + "mlp.";
    Layer layer;
    layer.input_norm = weights.take(base + "input_layernorm.weight", {d});
    layer.wq = weights.take(attention + "q_proj.weight", {q, d});
    layer.wk = weights.take(attention + "k_proj.weight", {kv, d});
    layer.wv = weights.take(attention + "v_proj.weight", {kv, d});
    layer.wo = weights.take(attention + "o_proj.weight", {d, q});
    layer.bq = weights.take_if(attention_bias, attention + "q_proj.bias", {q});
    layer.bk = weights.take_if(attention_bias, attention + "k_proj.bias", {kv});
    layer.bv = weights.take_if(attention_bias, attention + "v_proj.bias", {kv});
    layer.bo = weights.take_if(attention_bias, attention + "o_proj.bias", {d});
    layer.post_norm = weights.take(base + "post_attention_layernorm.weight", {d});
    layer.gate = weights.take(mlp + "gate_proj.weight", {inner, d});
    layer.up = weights.take(mlp + "up_proj.weight", {inner, d});
    layer.down = weights.take(mlp + "down_proj.weight", {d, inner});
    layer.gate_bias = weights.take_if(mlp_bias, mlp + "gate_proj.bias", {inner});
    layer.up_bias = weights.take_if(mlp_bias, mlp + "up_proj.bias", {inner});
    layer.down_bias = weights.take_if(mlp_bias, mlp + "down_proj.bias", {d});
    layers_.push_back(std::move(layer));
  }
  norm_ = weights.take("model.norm.weight", {d});
  head_ = weights.take_head(embedding_, fields.flag("tie_word_embeddings", false), {config_.vocab_size, d});
  parameters_ = weights.finish();
}

at::Tensor Llama::embed(const at::Tensor& ids, const at::Tensor& /*positions*/) const {
  check_ids(ids, config_.vocab_size);
  return at::embedding(embedding_, ids);
}

at::Tensor Llama::attend(int64_t index, const at::Tensor& hidden, const at::Tensor& positions, AttentionMethod& method,
                         const ForwardOptions& options) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const auto [cos, sin] = rope_.tables(positions, hidden.scalar_type());
  AttentionInput input;
  input.layer = index;
  input.hidden = hidden;
  input.q = Rope::apply(split_heads(linear(hidden, layer.wq, layer.bq), config_.num_heads), cos, sin);
  input.k = Rope::apply(split_heads(linear(hidden, layer.wk, layer.bk), config_.num_kv_heads), cos, sin);
  input.v = split_heads(linear(hidden, layer.wv, layer.bv), config_.num_kv_heads);
  input.scale = scale_;
  input.document_start = options.document_start;
  input.query_weight = layer.wq;
  input.key_weight = layer.wk;
  input.output_weight = layer.wo;
  input.cache = options.cache != nullptr ? options.cache->at(static_cast<size_t>(index)).get() : nullptr;
  return linear(merge_heads(method.attend(input)), layer.wo, layer.bo);
}

at::Tensor Llama::block(int64_t index, const at::Tensor& x, const at::Tensor& positions, AttentionMethod& method,
                        const ForwardOptions& options) const {
  const Layer& layer = layers_.at(static_cast<size_t>(index));
  const at::Tensor middle = x + attend(index, rms_norm(x, layer.input_norm, eps_), positions, method, options);
  const at::Tensor h = rms_norm(middle, layer.post_norm, eps_);
  const at::Tensor gated = activation_(linear(h, layer.gate, layer.gate_bias)) * linear(h, layer.up, layer.up_bias);
  return middle + linear(gated, layer.down, layer.down_bias);
}

}  // namespace

std::unique_ptr<CausalLM> load_llama(const LoadContext& context) {
  return std::make_unique<Llama>(context);
}

}  // namespace focus
