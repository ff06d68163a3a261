#include <cmath>
#include <utility>

#include "base/error.h"
#include "models/decoder.h"

namespace focus {

namespace {

/// 0 when null: no cap.
double read_softcap(const ConfigFields& fields, const char* name, double fallback) {
  if (!fields.has(name)) return fields.mentions(name) ? 0 : fallback;
  const double cap = fields.number(name);
  require(cap > 0, "{}: {} is {}, expected a positive number", fields.file(), name, cap);
  return cap;
}

}  // namespace

/// Gemma 2 (Gemma team 2024): every other layer slides, scores and logits are capped, norms stand before and after
/// attention and the feed-forward layer, and embeddings are scaled by the root of the width.
std::unique_ptr<CausalLM> load_gemma2(const LoadContext& context) {
  const ConfigFields& fields = context.config;
  DecoderTraits traits = read_common_traits(fields);
  traits.activation = find_activation(fields.text("hidden_activation", "gelu_pytorch_tanh"), fields.file());
  traits.default_head_dim = 256;
  traits.default_kv_heads = 4;
  traits.default_max_positions = 8192;
  traits.tied_by_default = true;
  traits.norm_weight = NormWeight::kOnePlus;
  traits.norm_after_attention = "post_attention_layernorm";
  traits.norm_before_mlp = "pre_feedforward_layernorm";
  traits.norm_after_mlp = "post_feedforward_layernorm";
  const double scalar = fields.number("query_pre_attn_scalar", 256);
  require(scalar > 0, "{}: query_pre_attn_scalar is {}, expected a positive number", fields.file(), scalar);
  traits.scale = 1.0 / std::sqrt(scalar);
  traits.attention_softcap = read_softcap(fields, "attn_logit_softcapping", 50);
  traits.logit_softcap = read_softcap(fields, "final_logit_softcapping", 30);
  traits.embedding_scale = std::sqrt(static_cast<double>(fields.size("hidden_size")));
  const int64_t window = read_sliding_window(fields, 4096);
  traits.layer_windows = read_layer_windows(fields, window, [](int64_t layer) { return layer % 2 == 0; });
  return make_decoder(context, std::move(traits));
}

}  // namespace focus
