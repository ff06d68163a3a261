#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "models/config_fields.h"

namespace focus {

/// Parameters of rotary position embedding in the form of Hugging Face's config.json.
struct RopeConfig {
  std::string type = "default";  ///< default, linear, dynamic, llama3 or yarn.
  double theta = 10000.0;
  double factor = 1.0;
  int64_t max_positions = 0;       ///< max_position_embeddings.
  int64_t original_positions = 0;  ///< original_max_position_embeddings (llama3, yarn).
  double low_freq_factor = 1.0;    ///< llama3.
  double high_freq_factor = 4.0;   ///< llama3.
  double beta_fast = 32.0;         ///< yarn.
  double beta_slow = 1.0;          ///< yarn.
  bool truncate = true;            ///< yarn.
  double attention_factor = 1.0;   ///< Factor of cos and sin (yarn).

  /// Reads `rope_parameters` (transformers 5), or `rope_theta` with `rope_scaling` (before). Throws Error naming an
  /// unknown type, a missing or impossible parameter.
  static RopeConfig read(const ConfigFields& config);
};

/// The inverse frequencies float32 [head_dim / 2] for a sequence of `length` positions (only `dynamic` depends on it).
/// The arithmetic follows transformers' modeling_rope_utils operation by operation in float32: at position 20,000 one
/// bit of a frequency is visible in the angle.
at::Tensor rope_inverse_frequencies(const RopeConfig& config, int64_t head_dim, int64_t length);

/// Rotary position embedding in the half-rotation layout (dimension i is paired with i + D/2).
class Rope {
 public:
  Rope(RopeConfig config, int64_t head_dim);

  /// cos and sin, each [B, 1, T, D/2] in `dtype`, of positions int64 [B, T]; computed in float32. The last result is
  /// kept, so that all layers of one pass share it. With `dynamic` scaling the frequencies follow the largest position
  /// of the call, so beyond max_positions chunked passes differ from one pass, as they do in transformers.
  std::pair<at::Tensor, at::Tensor> tables(const at::Tensor& positions, at::ScalarType dtype) const;

  /// x [B, H, T, D] rotated.
  static at::Tensor apply(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

 private:
  RopeConfig config_;
  int64_t head_dim_;
  at::Tensor frequencies_;  // float32 [D/2] for sequences up to max_positions.
  mutable std::mutex mutex_;
  mutable at::Tensor last_positions_;
  mutable uint32_t last_version_ = 0;
  mutable std::pair<at::Tensor, at::Tensor> last_;
};

}  // namespace focus
