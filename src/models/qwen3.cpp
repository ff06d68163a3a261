#include <utility>

#include "models/decoder.h"

namespace focus {

/// Qwen3 (Yang et al. 2025): RMS norms of each query and key head before the rotary embedding, no biases.
std::unique_ptr<CausalLM> load_qwen3(const LoadContext& context) {
  const ConfigFields& fields = context.config;
  DecoderTraits traits = read_common_traits(fields);
  traits.qk_norm = QkNorm::kPerHead;
  traits.default_head_dim = 128;
  traits.default_max_positions = 32768;
  traits.layer_windows = read_qwen_windows(fields);
  return make_decoder(context, std::move(traits));
}

}  // namespace focus
