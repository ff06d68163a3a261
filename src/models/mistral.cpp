#include <utility>

#include "base/error.h"
#include "models/decoder.h"

namespace focus {

/// Mistral (Jiang et al. 2023): LLaMA with one sliding window in all layers; later releases have none.
std::unique_ptr<CausalLM> load_mistral(const LoadContext& context) {
  const ConfigFields& fields = context.config;
  require(!fields.has("layer_types"),
          "{}: mistral with layer_types (layers that slide and layers that do not) is not supported", fields.file());
  DecoderTraits traits = read_common_traits(fields);
  traits.qkv_bias = traits.output_bias = false;
  traits.default_kv_heads = 8;
  traits.default_max_positions = 131072;
  const int64_t window = read_sliding_window(fields, 4096);
  traits.layer_windows = read_layer_windows(fields, window, [&](int64_t) { return true; });
  return make_decoder(context, std::move(traits));
}

}  // namespace focus
