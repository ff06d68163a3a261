#include "models/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "models/rope.h"

namespace focus {

namespace {

constexpr int64_t kMostLayers = 10'000;

/// Fields of models close to these families that change what is computed.
constexpr const char* kUnsupported[] = {
    "attention_chunk_size", "attention_multiplier", "clip_qkv",       "embedding_multiplier",
    "logit_scale",          "logits_scaling",       "no_rope_layers", "num_experts",
    "num_local_experts",    "residual_multiplier",  "use_mrope",      "use_bidirectional_attention"};

/// Weights of one block; undefined where the family has none.
struct Layer {
  at::Tensor norm_before_attention, norm_after_attention, norm_before_mlp, norm_after_mlp;  // [d]
  Projection query, key, value, output;  // d -> Hq * D, d -> Hkv * D twice, Hq * D -> d
  at::Tensor q_norm, k_norm;             // [D], or [Hq * D] and [Hkv * D]
  at::Tensor query_gain, key_gain;       // See AttentionInput.
  Projection gate, up, down;             // d -> F twice, F -> d
};

class Decoder : public CausalLM {
 public:
  Decoder(const LoadContext& context, DecoderTraits traits);

  const ModelConfig& config() const override { return config_; }
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions) const override;
  at::Tensor block(int64_t layer, const at::Tensor& x, const at::Tensor& positions, AttentionMethod& method,
                   const ForwardOptions& options) const override;
  at::Tensor final_norm(const at::Tensor& x) const override { return normalise(x, norm_); }
  at::Tensor logits(const at::Tensor& hidden) const override;
  const NamedParameters& parameters() const override { return parameters_; }
  std::string attention_module() const override { return "model.layers.{}.self_attn"; }
  NamedProjections projections() override;

 private:
  void load_layer(const LoadContext& context, int64_t index, int64_t inner);
  /// x normalised; unchanged where `weight` is undefined.
  at::Tensor normalise(const at::Tensor& x, const at::Tensor& weight) const {
    return weight.defined() ? rms_norm(x, weight, traits_.norm_eps, traits_.norm_weight) : x;
  }
  /// [B, T, H * D] -> [B, H, T, D], normalised if the family does so.
  at::Tensor heads(const at::Tensor& projected, int64_t count, const at::Tensor& norm) const;
  at::Tensor attend(int64_t index, const at::Tensor& hidden, const at::Tensor& positions, AttentionMethod& method,
                    const ForwardOptions& options) const;
  at::Tensor feed_forward(const Layer& layer, const at::Tensor& h) const;

  ModelConfig config_;
  DecoderTraits traits_;
  Rope rope_;
  at::Tensor embedding_;  // [V, d]
  std::vector<Layer> layers_;
  at::Tensor norm_;  // [d]
  at::Tensor head_;  // [V, d], the embedding if tied
  NamedParameters parameters_;
};

ModelConfig read_config(const ConfigFields& fields, ModelConfig config, const DecoderTraits& traits) {
  for (const char* name : kUnsupported) {
    require(!fields.has(name) || fields.is_false(name), "{}: '{}' is not supported for {}", fields.file(), name,
            config.model_type);
  }
  config.vocab_size = fields.size("vocab_size");
  config.hidden_size = fields.size("hidden_size");
  config.num_layers = fields.size("num_hidden_layers");
  config.num_heads = fields.size("num_attention_heads");
  config.num_kv_heads =
      fields.size("num_key_value_heads", traits.default_kv_heads > 0 ? traits.default_kv_heads : config.num_heads);
  config.max_positions = fields.size("max_position_embeddings", traits.default_max_positions);
  const bool divides = config.hidden_size % config.num_heads == 0;
  require(fields.has("head_dim") || traits.default_head_dim > 0 || divides,
          "{}: hidden_size {} is not a multiple of num_attention_heads {} and there is no head_dim", fields.file(),
          config.hidden_size, config.num_heads);
  const int64_t implied = std::max<int64_t>(1, config.hidden_size / config.num_heads);
  config.head_dim = fields.size("head_dim", traits.default_head_dim > 0 ? traits.default_head_dim : implied);
  require(config.num_heads % config.num_kv_heads == 0,
          "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", fields.file(), config.num_heads,
          config.num_kv_heads);
  require(config.head_dim % 2 == 0, "{}: rotary embedding needs an even head_dim, not {}", fields.file(),
          config.head_dim);
  require(config.num_layers <= kMostLayers, "{}: num_hidden_layers is {}, expected at most {}", fields.file(),
          config.num_layers, kMostLayers);
  config.layer_windows = traits.layer_windows;
  return config;
}

/// What a projected dimension is multiplied by in the norm of its head or of the whole width: [heads * D].
at::Tensor gain_of(const at::Tensor& norm, int64_t heads, QkNorm kind) {
  if (!norm.defined()) return {};
  return kind == QkNorm::kPerHead ? norm.repeat({heads}) : norm;
}

Decoder::Decoder(const LoadContext& context, DecoderTraits traits)
    : config_(read_config(context.config, context.common, traits)),
      traits_(std::move(traits)),
      rope_(RopeConfig::read(context.config), config_.head_dim) {
  const ConfigFields& fields = context.config;
  WeightLoader& weights = context.weights;
  const int64_t d = config_.hidden_size;
  if (traits_.scale == 0) traits_.scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim));
  const int64_t inner = fields.size("intermediate_size");
  context.stored.ignore_suffix("rotary_emb.inv_freq");

  embedding_ = weights.take("model.embed_tokens.weight", {config_.vocab_size, d});
  for (int64_t i = 0; i < config_.num_layers; ++i) load_layer(context, i, inner);
  norm_ = weights.take("model.norm.weight", {d});
  head_ = weights.take_head(embedding_, fields.flag("tie_word_embeddings", traits_.tied_by_default),
                            {config_.vocab_size, d});
  parameters_ = weights.finish();
}

void Decoder::load_layer(const LoadContext& context, int64_t index, int64_t inner) {
  WeightLoader& weights = context.weights;
  const int64_t d = config_.hidden_size;
  const int64_t q = config_.num_heads * config_.head_dim;
  const int64_t kv = config_.num_kv_heads * config_.head_dim;
  const std::string base = fmt::format("model.layers.{}.", index);
  const std::string attention = base + "self_attn.";
  const std::string mlp = base + "mlp.";
  const auto take_norm = [&](const char* name) {
    return name == nullptr ? at::Tensor() : weights.take(base + name + ".weight", {d});
  };
  Layer layer;
  layer.norm_before_attention = take_norm(traits_.norm_before_attention);
  const auto take_projection = [&](const std::string& name, int64_t out, int64_t in, bool has_bias) {
    Projection projection;
    projection.weight = weights.take(name + ".weight", {out, in});
    projection.bias = weights.take_if(has_bias, name + ".bias", {out});
    return projection;
  };
  layer.query = take_projection(attention + "q_proj", q, d, traits_.qkv_bias);
  layer.key = take_projection(attention + "k_proj", kv, d, traits_.qkv_bias);
  layer.value = take_projection(attention + "v_proj", kv, d, traits_.qkv_bias);
  layer.output = take_projection(attention + "o_proj", d, q, traits_.output_bias);
  const bool has_qk_norm = traits_.qk_norm != QkNorm::kNone;
  const bool per_head = traits_.qk_norm == QkNorm::kPerHead;
  layer.q_norm = weights.take_if(has_qk_norm, attention + "q_norm.weight", {per_head ? config_.head_dim : q});
  layer.k_norm = weights.take_if(has_qk_norm, attention + "k_norm.weight", {per_head ? config_.head_dim : kv});
  layer.query_gain = gain_of(layer.q_norm, config_.num_heads, traits_.qk_norm);
  layer.key_gain = gain_of(layer.k_norm, config_.num_kv_heads, traits_.qk_norm);
  layer.norm_after_attention = take_norm(traits_.norm_after_attention);
  layer.norm_before_mlp = take_norm(traits_.norm_before_mlp);
  layer.gate = take_projection(mlp + "gate_proj", inner, d, traits_.mlp_bias);
  layer.up = take_projection(mlp + "up_proj", inner, d, traits_.mlp_bias);
  layer.down = take_projection(mlp + "down_proj", d, inner, traits_.mlp_bias);
  layer.norm_after_mlp = take_norm(traits_.norm_after_mlp);
  layers_.push_back(std::move(layer));
}

at::Tensor Decoder::embed(const at::Tensor& ids, const at::Tensor& /*positions*/) const {
  check_ids(ids, config_.vocab_size);
  const at::Tensor x = at::embedding(embedding_, ids);
  if (traits_.embedding_scale == 1) return x;
  // Rounded to the model's dtype first, as in transformers.
  return x * at::scalar_tensor(traits_.embedding_scale, x.options().dtype(at::kFloat)).to(x.scalar_type());
}

at::Tensor Decoder::heads(const at::Tensor& projected, int64_t count, const at::Tensor& norm) const {
  if (traits_.qk_norm == QkNorm::kPerHead) return normalise(split_heads(projected, count), norm);
  return split_heads(normalise(projected, norm), count);
}

at::Tensor Decoder::attend(int64_t index, const at::Tensor& x, const at::Tensor& positions, AttentionMethod& method,
                           const ForwardOptions& options) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const at::Tensor hidden = normalise(x, layer.norm_before_attention);
  const at::ScalarType dtype = hidden.scalar_type();
  const auto [cos, sin] = rope_.tables(positions, traits_.wide_rope ? at::kFloat : dtype);
  AttentionInput input;
  input.layer = index;
  input.hidden = layer.norm_before_attention.defined() ? hidden : unit_rms(x, traits_.norm_eps);
  const std::vector<at::Tensor> qkv = project_each(hidden, {&layer.query, &layer.key, &layer.value});
  input.v = split_heads(qkv[2], config_.num_kv_heads);
  // Values have the dtype of the products, which under autocast is not that of the hidden states.
  const at::ScalarType product = input.v.scalar_type();
  const auto rotated = [&](const at::Tensor& heads_of) { return Rope::apply(heads_of, cos, sin).to(product); };
  input.q = rotated(heads(qkv[0], config_.num_heads, layer.q_norm));
  input.k = rotated(heads(qkv[1], config_.num_kv_heads, layer.k_norm));
  input.scale = traits_.scale;
  input.softcap = traits_.attention_softcap;
  input.layer_window = config_.layer_window(index);
  input.document_start = options.document_start;
  input.query_weight = layer.query.weight;
  input.key_weight = layer.key.weight;
  input.output_weight = layer.output.weight;
  input.query_gain = layer.query_gain;
  input.key_gain = layer.key_gain;
  input.cache = options.cache != nullptr ? options.cache->at(static_cast<size_t>(index)).get() : nullptr;
  return normalise(layer.output(merge_heads(method.attend(input))), layer.norm_after_attention);
}

at::Tensor Decoder::feed_forward(const Layer& layer, const at::Tensor& x) const {
  const at::Tensor h = normalise(x, layer.norm_before_mlp);
  const std::vector<at::Tensor> both = project_each(h, {&layer.gate, &layer.up});
  return normalise(layer.down(traits_.activation(both[0]) * both[1]), layer.norm_after_mlp);
}

at::Tensor Decoder::block(int64_t index, const at::Tensor& x, const at::Tensor& positions, AttentionMethod& method,
                          const ForwardOptions& options) const {
  const Layer& layer = layers_.at(static_cast<size_t>(index));
  const at::Tensor middle = x + attend(index, x, positions, method, options);
  return middle + feed_forward(layer, middle);
}

NamedProjections Decoder::projections() {
  NamedProjections all;
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const std::string base = fmt::format("model.layers.{}.", i);
    for (const auto& [name, projection] : NamedProjections{{"self_attn.q_proj", &layer.query},
                                                           {"self_attn.k_proj", &layer.key},
                                                           {"self_attn.v_proj", &layer.value},
                                                           {"self_attn.o_proj", &layer.output},
                                                           {"mlp.gate_proj", &layer.gate},
                                                           {"mlp.up_proj", &layer.up},
                                                           {"mlp.down_proj", &layer.down}}) {
      all.emplace_back(base + name, projection);
    }
  }
  return all;
}

at::Tensor Decoder::logits(const at::Tensor& hidden) const {
  const at::Tensor scores = linear(hidden, head_, at::Tensor());
  return traits_.logit_softcap > 0 ? (scores / traits_.logit_softcap).tanh() * traits_.logit_softcap : scores;
}

}  // namespace

std::unique_ptr<CausalLM> make_decoder(const LoadContext& context, DecoderTraits traits) {
  require(traits.activation != nullptr, "{}: no activation", context.config.file());
  return std::make_unique<Decoder>(context, std::move(traits));
}

DecoderTraits read_common_traits(const ConfigFields& fields) {
  DecoderTraits traits;
  traits.norm_eps = fields.number("rms_norm_eps", traits.norm_eps);
  traits.activation = find_activation(fields.text("hidden_act", "silu"), fields.file());
  traits.qkv_bias = traits.output_bias = fields.flag("attention_bias", false);
  return traits;
}

int64_t read_sliding_window(const ConfigFields& fields, int64_t fallback) {
  if (!fields.mentions("sliding_window")) return fallback;
  return fields.has("sliding_window") ? fields.size("sliding_window") : 0;
}

std::vector<int64_t> read_layer_windows(const ConfigFields& fields, int64_t window,
                                        const std::function<bool(int64_t layer)>& slides) {
  const std::vector<std::string> types = fields.texts("layer_types");
  const int64_t layers = fields.size("num_hidden_layers");
  require(types.empty() || std::ssize(types) == layers, "{}: layer_types has {} entries for {} layers", fields.file(),
          types.size(), layers);
  require(layers <= kMostLayers, "{}: num_hidden_layers is {}, expected at most {}", fields.file(), layers,
          kMostLayers);
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < layers; ++i) {
    bool sliding = types.empty() && slides(i);
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(i)];
      sliding = type == "sliding_attention";
      require(sliding || type == "full_attention",
              "{}: unknown layer type '{}' in layer_types (known: full_attention, sliding_attention)", fields.file(),
              type);
      require(!sliding || window > 0, "{}: layer_types lets layer {} slide, but there is no sliding_window",
              fields.file(), i);
    }
    windows.push_back(sliding ? window : 0);
  }
  return windows;
}

std::vector<int64_t> read_qwen_windows(const ConfigFields& fields) {
  const int64_t window = fields.flag("use_sliding_window", false) ? read_sliding_window(fields, 4096) : 0;
  const int64_t first = fields.count("max_window_layers", 28);
  return read_layer_windows(fields, window, [&](int64_t layer) { return layer >= first; });
}

}  // namespace focus
