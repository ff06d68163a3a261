#include <utility>

#include "models/decoder.h"

namespace focus {

/// Qwen2 and Qwen2.5 (Yang et al. 2024): biases of the query, key and value projections; a sliding window, where it is
/// used, begins at layer max_window_layers.
std::unique_ptr<CausalLM> load_qwen2(const LoadContext& context) {
  const ConfigFields& fields = context.config;
  DecoderTraits traits = read_common_traits(fields);
  traits.qkv_bias = true;
  traits.output_bias = false;
  traits.default_max_positions = 32768;
  traits.layer_windows = read_qwen_windows(fields);
  return make_decoder(context, std::move(traits));
}

}  // namespace focus
