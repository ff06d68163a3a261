#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/method.h"
#include "base/memory.h"
#include "models/projection.h"

namespace focus {

/// What every family has, read from config.json. Family-specific fields stay in the family's file.
struct ModelConfig {
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;  ///< Longest sequence the position encoding was made for.
  std::optional<int64_t> bos_id;
  /// Own sliding window of each layer (i - j < window), 0 for none; empty: no layer has one.
  std::vector<int64_t> layer_windows;
  std::vector<int64_t> eos_ids;  ///< Union of config.json and generation_config.json.

  int64_t layer_window(int64_t layer) const {
    return layer_windows.empty() ? 0 : layer_windows.at(static_cast<size_t>(layer));
  }
};

/// Caches of all layers of one generation or chunked pass.
using ModelCache = std::vector<std::unique_ptr<LayerCache>>;

/// Optional inputs of a forward pass.
struct ForwardOptions {
  ModelCache* cache = nullptr;  ///< Null: the ids are the whole sequence.
  /// int32 [B, Tk], see AttentionParams; positions restart with each document.
  std::optional<at::Tensor> document_start;
};

/// A decoder-only language model of some family. Weights are ordinary tensors; gradients flow if they are asked for.
class CausalLM {
 public:
  virtual ~CausalLM() = default;
  virtual const ModelConfig& config() const = 0;
  /// Token (and learned position) embeddings: ids int64 [B, T], positions int64 [B, T] -> [B, T, d].
  virtual at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions) const = 0;
  /// Block `layer` with its residual connections: x [B, T, d] -> [B, T, d].
  virtual at::Tensor block(int64_t layer, const at::Tensor& x, const at::Tensor& positions, AttentionMethod& method,
                           const ForwardOptions& options) const = 0;
  /// Final norm: [B, T, d] -> [B, T, d].
  virtual at::Tensor final_norm(const at::Tensor& x) const = 0;
  /// Output head on normalised states: [..., d] -> [..., V].
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
  /// Name of a layer's attention module in Hugging Face's naming, {} for the layer's number; adapters name their
  /// weights by it.
  virtual std::string attention_module() const = 0;
  /// All weights by their Hugging Face names (views, not copies).
  virtual const std::vector<std::pair<std::string, at::Tensor>>& parameters() const = 0;
  /// The linear maps of the blocks, which low-rank updates attach to.
  virtual NamedProjections projections() { return {}; }

  /// Positions int64 [B, T] that the options imply: after the cache, restarting with each document.
  at::Tensor positions(const at::Tensor& ids, const ForwardOptions& options) const;
  /// ids int64 [B, T] -> final normalised states [B, T, d].
  at::Tensor forward(const at::Tensor& ids, AttentionMethod& method, const ForwardOptions& options = {}) const;
  /// One cache per layer with room for `capacity` tokens, which keeps keys and values in `dtype` (absent: as the model
  /// computes them).
  ModelCache make_cache(const AttentionMethod& method, int64_t batch, int64_t capacity,
                        std::optional<at::ScalarType> dtype = {}) const;
};

/// Rotary positions stretched beyond the context that a model was trained with (models/rope_scaling.h).
struct RopeScaling {
  std::string type;
  double factor = 1.0;
};

struct LoadOptions {
  std::optional<at::ScalarType> dtype;  ///< Absent: as stored.
  at::Device device = at::kCPU;
  std::optional<RopeScaling> rope_scaling = {};  ///< For a model without one; its context grows by the factor.
  WeightMemory weights = WeightMemory::kMapped;
};

/// Loads a Hugging Face folder by the `model_type` of its config.json.
/// Throws Error naming: unknown architecture (and the known ones), missing, unused or mis-shaped weights, unknown
/// dtype.
std::unique_ptr<CausalLM> load_model(const std::filesystem::path& folder, const LoadOptions& options = {});

/// A model of random weights after the config.json in `folder` (its weights, if any, are not looked at): matrices and
/// embeddings normal with standard deviation initializer_range (default 0.02), of GPT-2 those that write to the
/// residual stream divided by sqrt(2 layers), norms 1, biases 0, as transformers initialises. Each weight depends on
/// the seed and its name only. Throws Error for what load_model refuses in a config.json.
std::unique_ptr<CausalLM> init_model(const std::filesystem::path& folder, uint64_t seed,
                                     const LoadOptions& options = {});

/// Writes a Hugging Face folder with the model's weights (one model.safetensors, converted to `dtype`) and the
/// configuration and tokenizer files of `source`, the folder that it came from. Whole or not at all; a former folder
/// is replaced. Throws Error.
void save_model(const std::filesystem::path& folder, const CausalLM& model, const std::filesystem::path& source,
                at::ScalarType dtype);

/// A short hash (16 hex digits) of architecture, dimensions and a sample of every weight, rounded to bfloat16, so that
/// a bfloat16 model loaded as float32 is recognised. Saved in adapters to recognise the base model.
std::string model_fingerprint(const CausalLM& model);

}  // namespace focus
