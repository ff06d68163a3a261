#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/layers.h"
#include "models/loading.h"

namespace focus {

/// What queries and keys are RMS-normalised over before the rotary embedding.
enum class QkNorm { kNone, kPerHead, kWholeWidth };

/// How a family departs from LLaMA (Touvron et al. 2023): pre-norm blocks of rotary attention with grouped heads and a
/// gated feed-forward layer. A family's file fills one in from its config.json; the weights' names follow from it.
struct DecoderTraits {
  /// Used where config.json does not say; 0 for hidden_size / num_attention_heads.
  int64_t default_head_dim = 0;
  /// Used where config.json does not say; 0 for num_attention_heads.
  int64_t default_kv_heads = 0;
  int64_t default_max_positions = 2048;
  bool tied_by_default = false;

  double norm_eps = 1e-6;
  NormWeight norm_weight = NormWeight::kAfterRounding;
  /// Names of a block's norms ("input_layernorm" ...), null where it has none. The norm after attention or the
  /// feed-forward layer applies to its output before that is added to the residual stream.
  const char* norm_before_attention = "input_layernorm";
  const char* norm_after_attention = nullptr;
  const char* norm_before_mlp = "post_attention_layernorm";
  const char* norm_after_mlp = nullptr;

  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  /// Rotary tables stay float32 and rotate float32 queries and keys (else in the model's dtype).
  bool wide_rope = false;
  Activation activation = nullptr;
  /// Factor of q.k; 0 for 1 / sqrt(head_dim).
  double scale = 0;
  double attention_softcap = 0;  ///< 0: none, as for logit_softcap.
  double logit_softcap = 0;
  double embedding_scale = 1;
  /// Own sliding window of each layer (i - j < window), 0 for none; empty: no layer has one.
  std::vector<int64_t> layer_windows;
};

/// A decoder of this kind with its weights. Throws Error as load_model does.
std::unique_ptr<CausalLM> make_decoder(const LoadContext& context, DecoderTraits traits);

/// Reads the fields that most families share: rms_norm_eps, hidden_act, attention_bias (queries, keys, values and
/// output).
DecoderTraits read_common_traits(const ConfigFields& fields);

/// `sliding_window` of config.json: 0 when null, `fallback` when absent.
int64_t read_sliding_window(const ConfigFields& fields, int64_t fallback);

/// `window` for the layers that slide, 0 for the others: by `layer_types` ("full_attention" or "sliding_attention"),
/// which transformers writes since 4.53, or where that is absent by `slides`. Throws Error naming an unknown layer
/// type, a list of another length, or a layer that slides without a window.
std::vector<int64_t> read_layer_windows(const ConfigFields& fields, int64_t window,
                                        const std::function<bool(int64_t layer)>& slides);

/// read_layer_windows by Qwen's fields: with use_sliding_window the layers from max_window_layers on slide.
std::vector<int64_t> read_qwen_windows(const ConfigFields& fields);

}  // namespace focus
