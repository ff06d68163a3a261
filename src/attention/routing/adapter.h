#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "attention/head_scales.h"
#include "attention/routing/router.h"

namespace focus {

/// A trained router, trained scalars of the query heads, or both, with what they were trained on. On disk a folder in
/// PEFT's layout: adapter_config.json (peft_type FOCUS), adapter_model.safetensors with the keys
/// base_model.model.<module of the layer>.focus.<tensor>, README.md (model card).
struct Adapter {
  std::shared_ptr<const Router> router;      ///< Null: no lists, head scales for full attention alone.
  std::shared_ptr<const HeadScales> scales;  ///< Null: none. All layers have as many query heads.
  std::string base_model_name_or_path;
  std::string base_fingerprint;  ///< model_fingerprint of the base.
  /// Name of a layer's attention module in the base's own weights, {} for the layer number.
  std::string module = "model.layers.{}.self_attn";
  nlohmann::json training = nlohmann::json::object();  ///< Free-form: steps, data, seconds, ...
  /// Set by load_adapter: false for another base, taken because of `force`.
  bool base_matches = true;
};

/// Writes the folder: complete under a temporary name, then renamed, replacing a former one. `dtype` float32 or
/// bfloat16 holds for all tensors but potentials, exponents and head scales, which are always float32. Throws Error.
void save_adapter(const std::filesystem::path& folder, const Adapter& adapter, at::ScalarType dtype = at::kFloat);

/// A number, 16 hexadecimal digits, that changes with any bit of the adapter's tensors: to recognise it by.
std::string adapter_digest(const Adapter& adapter);

struct AdapterLoadOptions {
  std::optional<std::string> base_fingerprint;  ///< Of the model at hand; absent: not compared.
  bool force = false;                           ///< Takes an adapter of another base.
};

/// Reads a folder of format version 3, or 2 (without head scales), weights to float32. Throws Error naming: missing
/// files; an unknown peft_type or format_version; a setting that is missing, of the wrong type or out of range; another
/// base; a key that is missing, extra, mis-shaped, of a wrong dtype or not finite.
Adapter load_adapter(const std::filesystem::path& folder, const AdapterLoadOptions& options = {});

}  // namespace focus
