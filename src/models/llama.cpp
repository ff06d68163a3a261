#include <utility>

#include "models/decoder.h"

namespace focus {

/// LLaMA 2 and 3 (Touvron et al. 2023; Meta 2024), SmolLM2.
std::unique_ptr<CausalLM> load_llama(const LoadContext& context) {
  DecoderTraits traits = read_common_traits(context.config);
  traits.mlp_bias = context.config.flag("mlp_bias", false);
  return make_decoder(context, std::move(traits));
}

}  // namespace focus
