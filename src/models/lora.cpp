#include "models/lora.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "models/config_fields.h"
#include "weights/hf_folder.h"
#include "weights/safetensors.h"

namespace focus {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kWeightsFile = "adapter_model.safetensors";
constexpr const char* kFingerprint = "base_fingerprint";

std::string key_of(const std::string& module, const char* part) {
  return "base_model.model." + module + ".lora_" + part + ".weight";
}

bool is_target(const std::string& module, const std::vector<std::string>& targets) {
  return std::any_of(targets.begin(), targets.end(),
                     [&](const std::string& target) { return module == target || module.ends_with("." + target); });
}

/// The projections that `targets` name. Throws Error naming a target without any.
NamedProjections chosen(CausalLM& model, const std::vector<std::string>& targets) {
  const NamedProjections all = model.projections();
  std::set<std::string> kinds;
  for (const auto& [name, projection] : all) kinds.insert(name.substr(name.rfind('.') + 1));
  for (const std::string& target : targets) {
    const bool found = std::any_of(all.begin(), all.end(), [&](const auto& p) { return is_target(p.first, {target}); });
    if (!found)
      fail_usage("no module '{}' to attach a low-rank update to (there are {})", target, fmt::join(kinds, ", "));
  }
  NamedProjections result;
  for (const auto& [name, projection] : all) {
    if (is_target(name, targets)) result.emplace_back(name, projection);
  }
  return result;
}

/// Settings of PEFT that change what an update computes, with the values that mean nothing.
void refuse_unsupported(const ConfigFields& fields) {
  for (const char* name : {"use_dora", "use_qalora", "lora_bias"}) {
    require(!fields.has(name) || fields.is_false(name), "{}: '{}' is not supported", fields.file(), name);
  }
  require(fields.text("bias", "none") == "none", "{}: trained biases ('bias') are not supported", fields.file());
  for (const char* name : {"rank_pattern", "alpha_pattern"}) {
    require(!fields.has(name) || fields.object(name).empty(), "{}: '{}' is not supported", fields.file(), name);
  }
  for (const char* name : {"modules_to_save", "layer_replication", "trainable_token_indices", "target_parameters"}) {
    require(!fields.has(name), "{}: '{}' is not supported", fields.file(), name);
  }
}

}  // namespace

std::vector<std::string> default_lora_targets(const CausalLM& model) {
  if (model.config().model_type == "gpt2") return {"c_attn"};
  return {"q_proj", "v_proj"};
}

NamedParameters attach_lora(CausalLM& model, const LoraOptions& options, uint64_t seed) {
  require(options.rank >= 1, "a low-rank update needs a rank of at least 1, not {}", options.rank);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  NamedParameters parameters;
  for (const auto& [name, projection] :
       chosen(model, options.targets.empty() ? default_lora_targets(model) : options.targets)) {
    const int64_t in = projection->in_features();
    auto update = std::make_shared<LowRankUpdate>();
    const double bound = 1.0 / std::sqrt(static_cast<double>(in));
    const at::TensorOptions place = at::TensorOptions(at::kFloat).device(projection->weight.device());
    update->a = at::empty({options.rank, in}, at::kFloat).uniform_(-bound, bound, generator).to(place);
    update->b = at::zeros({projection->out_features(), options.rank}, place);
    update->scale = options.alpha / static_cast<double>(options.rank);
    parameters.emplace_back(key_of(name, "A"), update->a);
    parameters.emplace_back(key_of(name, "B"), update->b);
    projection->update = std::move(update);
  }
  return parameters;
}

void save_lora(const fs::path& folder, const CausalLM& model, const LoraOptions& options,
               const NamedParameters& parameters, const std::string& base_name) {
  const json config = {{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", base_name},
                       {"r", options.rank},
                       {"lora_alpha", options.alpha},
                       {"lora_dropout", 0.0},
                       {"target_modules", options.targets.empty() ? default_lora_targets(model) : options.targets},
                       {"bias", "none"},
                       {"fan_in_fan_out", model.config().model_type == "gpt2"},
                       {"inference_mode", true}};
  NamedParameters tensors;
  for (const auto& [name, tensor] : parameters) tensors.emplace_back(name, tensor.detach().to(at::kCPU).contiguous());
  PendingFolder pending(folder);
  write_safetensors(pending.path() / kWeightsFile, tensors,
                    {{"format", "pt"}, {kFingerprint, model_fingerprint(model)}});
  write_file_atomically(pending.path() / kConfigFile, json_text(config, 2) + "\n");
  pending.publish();
}

void load_lora(CausalLM& model, const fs::path& folder) {
  require(fs::is_directory(folder), "{}: no such adapter folder", folder.string());
  const fs::path config_file = folder / kConfigFile;
  const json config = read_json_object(config_file);
  const ConfigFields fields(config, config_file.string());
  require(fields.text("peft_type", "") == "LORA", "{}: peft_type is '{}', expected LORA", config_file.string(),
          fields.text("peft_type", ""));
  refuse_unsupported(fields);
  const int64_t rank = fields.size("r");
  const double alpha = fields.number("lora_alpha", 8);
  const double divisor =
      fields.flag("use_rslora", false) ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank);
  const SafetensorsFile file = SafetensorsFile::open(folder / kWeightsFile);
  const auto fingerprint = file.metadata().find(kFingerprint);
  require(fingerprint == file.metadata().end() || fingerprint->second == model_fingerprint(model),
          "{}: made for another base model ({}, this one is {})", folder.string(), fingerprint->second,
          model_fingerprint(model));

  std::set<std::string> left;
  for (const std::string& name : file.names()) left.insert(name);
  require(!left.empty(), "{}: no weights", file.path().string());
  std::map<Projection*, std::shared_ptr<const LowRankUpdate>> updates;
  for (const auto& [name, projection] : model.projections()) {
    if (!file.contains(key_of(name, "A")) && !file.contains(key_of(name, "B"))) continue;
    const auto take = [&](const char* part, std::vector<int64_t> shape) {
      const std::string key = key_of(name, part);
      require(left.erase(key) == 1, "{}: '{}' is missing", file.path().string(), key);
      const at::Tensor stored = file.tensor(key);
      require(stored.sizes() == shape, "{}: '{}' has shape [{}], expected [{}]", file.path().string(), key,
              fmt::join(stored.sizes(), ", "), fmt::join(shape, ", "));
      const at::Tensor tensor =
          stored.to(projection->weight.device(), at::kFloat, /*non_blocking=*/false, /*copy=*/true);
      require(at::isfinite(tensor).all().item<bool>(), "{}: '{}' holds values that are not finite",
              file.path().string(), key);
      return tensor;
    };
    auto update = std::make_shared<LowRankUpdate>();
    update->a = take("A", {rank, projection->in_features()});
    update->b = take("B", {projection->out_features(), rank});
    update->scale = alpha / divisor;
    updates[projection] = std::move(update);
  }
  require(left.empty(), "{}: '{}' belongs to no module of the model{}", file.path().string(), *left.begin(),
          left.size() > 1 ? fmt::format(" (nor do {} more)", left.size() - 1) : "");
  for (auto& [projection, update] : updates) projection->update = update;
}

}  // namespace focus
