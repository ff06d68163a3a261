#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/layers.h"
#include "models/loading.h"

namespace focus {

namespace {

struct Norm {
  at::Tensor weight, bias;  // [d]
};

struct Layer {
  Norm norm_1, norm_2;
  Projection attention_in;   // d -> 3 d
  Projection attention_out;  // d -> d
  Projection mlp_in;         // d -> F
  Projection mlp_out;        // F -> d
};

/// GPT-2 (Radford et al. 2019): pre-norm blocks with learned positions.
class Gpt2 : public CausalLM {
 public:
  explicit Gpt2(const LoadContext& context);

  const ModelConfig& config() const override { return config_; }
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions) const override;
  at::Tensor block(int64_t layer, const at::Tensor& x, const at::Tensor& positions, AttentionMethod& method,
                   const ForwardOptions& options) const override;
  at::Tensor final_norm(const at::Tensor& x) const override { return normalise(x, norm_); }
  at::Tensor logits(const at::Tensor& hidden) const override { return linear(hidden, head_, at::Tensor()); }
  const NamedParameters& parameters() const override { return parameters_; }
  std::string attention_module() const override { return "transformer.h.{}.attn"; }
  NamedProjections projections() override;

 private:
  at::Tensor normalise(const at::Tensor& x, const Norm& norm) const {
    return at::layer_norm(x, {config_.hidden_size}, norm.weight, norm.bias, eps_);
  }
  at::Tensor attend(int64_t index, const at::Tensor& hidden, AttentionMethod& method,
                    const ForwardOptions& options) const;

  ModelConfig config_;
  double eps_;
  bool scale_by_width_;
  bool scale_by_layer_;
  Activation activation_;
  at::Tensor tokens_;     // [V, d]
  at::Tensor positions_;  // [max_positions, d]
  std::vector<Layer> layers_;
  Norm norm_;
  at::Tensor head_;  // [V, d], the token embedding if tied
  NamedParameters parameters_;
};

ModelConfig read_config(const ConfigFields& fields, ModelConfig config) {
  config.vocab_size = fields.size("vocab_size");
  config.hidden_size = fields.size("n_embd");
  config.num_layers = fields.size("n_layer");
  config.num_heads = fields.size("n_head");
  config.num_kv_heads = config.num_heads;
  config.max_positions = fields.size("n_positions", 1024);
  require(config.hidden_size % config.num_heads == 0, "{}: n_embd {} is not a multiple of n_head {}", fields.file(),
          config.hidden_size, config.num_heads);
  config.head_dim = config.hidden_size / config.num_heads;
  require(config.num_layers <= 10'000, "{}: n_layer is {}, expected at most 10000", fields.file(), config.num_layers);
  require(!fields.flag("add_cross_attention", false), "{}: cross attention (add_cross_attention) is not supported",
          fields.file());
  return config;
}

Gpt2::Gpt2(const LoadContext& context)
    : config_(read_config(context.config, context.common)),
      eps_(context.config.number("layer_norm_epsilon", 1e-5)),
      scale_by_width_(context.config.flag("scale_attn_weights", true)),
      scale_by_layer_(context.config.flag("scale_attn_by_inverse_layer_idx", false)),
      activation_(find_activation(context.config.text("activation_function", "gelu_new"), context.config.file())) {
  WeightLoader& weights = context.weights;
  const int64_t d = config_.hidden_size;
  const int64_t inner = context.config.size("n_inner", 4 * d);
  // The oldest checkpoints lack the prefix; their causal masks are stored as ".attn.bias".
  const std::string prefix = "transformer.";
  const std::string stored_prefix = context.stored.contains("wte.weight") ? "" : prefix;
  context.stored.ignore_suffix(".attn.bias");
  context.stored.ignore_suffix(".attn.masked_bias");
  const auto take = [&](const std::string& name, at::IntArrayRef shape) {
    return weights.take_as(prefix + name, stored_prefix + name, shape);
  };
  const auto take_norm = [&](const std::string& name) {
    return Norm{take(name + ".weight", {d}), take(name + ".bias", {d})};
  };
  const auto take_affine = [&](const std::string& name, int64_t in, int64_t out) {
    Projection projection;
    projection.weight = take(name + ".weight", {in, out});
    projection.bias = take(name + ".bias", {out});
    projection.input_first = true;
    return projection;
  };

  tokens_ = take("wte.weight", {config_.vocab_size, d});
  positions_ = take("wpe.weight", {config_.max_positions, d});
  for (int64_t i = 0; i < config_.num_layers; ++i) {
    const std::string base = fmt::format("h.{}.", i);
    layers_.push_back({take_norm(base + "ln_1"), take_norm(base + "ln_2"), take_affine(base + "attn.c_attn", d, 3 * d),
                       take_affine(base + "attn.c_proj", d, d), take_affine(base + "mlp.c_fc", d, inner),
                       take_affine(base + "mlp.c_proj", inner, d)});
  }
  norm_ = take_norm("ln_f");
  head_ = weights.take_head(tokens_, context.config.flag("tie_word_embeddings", true), {config_.vocab_size, d});
  parameters_ = weights.finish();
}

at::Tensor Gpt2::embed(const at::Tensor& ids, const at::Tensor& positions) const {
  check_ids(ids, config_.vocab_size);
  const int64_t last = positions.max().item<int64_t>();
  require(last < config_.max_positions, "{} tokens exceed the model's {} learned positions", last + 1,
          config_.max_positions);
  return at::embedding(tokens_, ids) + at::embedding(positions_, positions);
}

NamedProjections Gpt2::projections() {
  NamedProjections all;
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const std::string base = fmt::format("transformer.h.{}.", i);
    all.emplace_back(base + "attn.c_attn", &layer.attention_in);
    all.emplace_back(base + "attn.c_proj", &layer.attention_out);
    all.emplace_back(base + "mlp.c_fc", &layer.mlp_in);
    all.emplace_back(base + "mlp.c_proj", &layer.mlp_out);
  }
  return all;
}

at::Tensor Gpt2::attend(int64_t index, const at::Tensor& hidden, AttentionMethod& method,
                        const ForwardOptions& options) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const std::vector<at::Tensor> qkv = layer.attention_in(hidden).split(config_.hidden_size, -1);
  AttentionInput input;
  input.layer = index;
  input.hidden = hidden;
  input.q = split_heads(qkv[0], config_.num_heads);
  input.k = split_heads(qkv[1], config_.num_heads);
  input.v = split_heads(qkv[2], config_.num_heads);
  input.scale = scale_by_width_ ? 1.0 / std::sqrt(static_cast<double>(config_.head_dim)) : 1.0;
  if (scale_by_layer_) input.scale /= static_cast<double>(index + 1);
  input.document_start = options.document_start;
  input.query_weight = layer.attention_in.weight.narrow(1, 0, config_.hidden_size).t();
  input.key_weight = layer.attention_in.weight.narrow(1, config_.hidden_size, config_.hidden_size).t();
  input.output_weight = layer.attention_out.weight.t();
  input.cache = options.cache != nullptr ? options.cache->at(static_cast<size_t>(index)).get() : nullptr;
  return layer.attention_out(merge_heads(method.attend(input)));
}

at::Tensor Gpt2::block(int64_t index, const at::Tensor& x, const at::Tensor& /*positions*/, AttentionMethod& method,
                       const ForwardOptions& options) const {
  const Layer& layer = layers_.at(static_cast<size_t>(index));
  const at::Tensor middle = x + attend(index, normalise(x, layer.norm_1), method, options);
  return middle + layer.mlp_out(activation_(layer.mlp_in(normalise(middle, layer.norm_2))));
}

}  // namespace

std::unique_ptr<CausalLM> load_gpt2(const LoadContext& context) {
  return std::make_unique<Gpt2>(context);
}

}  // namespace focus
