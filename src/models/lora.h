#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/loading.h"
#include "models/model.h"

namespace focus {

/// Low-rank updates of a frozen model (LoRA, Hu et al. 2021), stored as PEFT stores them.
struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;  ///< An update is multiplied by alpha / rank.
  /// Modules that get one, by the last parts of their names ("q_proj", "attn.c_proj"); empty: default_lora_targets.
  std::vector<std::string> targets;
};

/// The modules that PEFT takes when none is named: queries and values; of GPT-2 the joint attention input.
std::vector<std::string> default_lora_targets(const CausalLM& model);

/// Attaches an update to each target: A uniform within +-1 / sqrt(in) (PEFT's Kaiming start), B zero, so that nothing
/// changes yet. Returns the tensors (float32) by PEFT's names. Throws UsageError naming a target that no module has.
NamedParameters attach_lora(CausalLM& model, const LoraOptions& options, uint64_t seed);

/// Writes adapter_config.json and adapter_model.safetensors, whole or not at all. `parameters` as attach_lora gave
/// them.
void save_lora(const std::filesystem::path& folder, const CausalLM& model, const LoraOptions& options,
               const NamedParameters& parameters, const std::string& base_name);

/// Attaches what save_lora or PEFT wrote. Throws Error naming what is missing, extra, mis-shaped, not finite or of a
/// kind that is not supported (biases, DoRA, ranks by pattern), and a folder made for another base model.
void load_lora(CausalLM& model, const std::filesystem::path& folder);

}  // namespace focus
