#include <utility>

#include "models/decoder.h"

namespace focus {

/// OLMo-2 (OLMo team 2024): no norms before attention and the feed-forward layer but after them, and RMS norms of the
/// queries and keys over their whole width.
std::unique_ptr<CausalLM> load_olmo2(const LoadContext& context) {
  const ConfigFields& fields = context.config;
  DecoderTraits traits = read_common_traits(fields);
  traits.norm_eps = fields.number("rms_norm_eps", 1e-5);
  traits.norm_weight = NormWeight::kBeforeRounding;
  traits.norm_before_attention = nullptr;
  traits.norm_after_attention = "post_attention_layernorm";
  traits.norm_before_mlp = nullptr;
  traits.norm_after_mlp = "post_feedforward_layernorm";
  traits.qk_norm = QkNorm::kWholeWidth;
  traits.wide_rope = true;
  return make_decoder(context, std::move(traits));
}

}  // namespace focus
