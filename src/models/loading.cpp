#include "models/loading.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "models/random_weights.h"
#include "models/rope_scaling.h"
#include "weights/dtype.h"
#include "weights/hf_folder.h"
#include "weights/safetensors.h"

namespace focus {

namespace {

struct Family {
  const char* model_type;
  std::unique_ptr<CausalLM> (*load)(const LoadContext& context);
  bool rotary = true;
};

constexpr std::array kFamilies = {
    Family{"gemma2", load_gemma2},   Family{"gpt2", load_gpt2, false}, Family{"llama", load_llama},
    Family{"mistral", load_mistral}, Family{"olmo2", load_olmo2},      Family{"qwen2", load_qwen2},
    Family{"qwen3", load_qwen3},
};

const Family& find_family(const std::string& model_type, const std::string& file) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (model_type == family.model_type) return family;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  fail("{}: unknown architecture (model_type) '{}'; known: {}", file, model_type, known);
}

std::vector<int64_t> united(std::vector<int64_t> a, const std::vector<int64_t>& b) {
  for (const int64_t id : b) {
    if (std::find(a.begin(), a.end(), id) == a.end()) a.push_back(id);
  }
  return a;
}

}  // namespace

at::Tensor WeightLoader::convert(const at::Tensor& tensor) const {
  const at::ScalarType dtype = options_.dtype.value_or(tensor.scalar_type());
  const bool resident = options_.weights == WeightMemory::kResident && options_.device.is_cpu();
  const at::Tensor converted = resident ? memory_->copy(tensor, dtype) : tensor.to(options_.device, dtype);
  // A copy is all that is needed from here on: a large model must not take memory twice.
  if (!converted.is_same(tensor)) release_pages(tensor);
  return converted;
}

at::Tensor WeightLoader::take(const std::string& name, at::IntArrayRef shape) {
  return take_as(name, name, shape);
}

at::Tensor WeightLoader::take_as(const std::string& name, const std::string& stored, at::IntArrayRef shape) {
  const at::Tensor found = init_ ? init_(name, shape) : weights_->take(stored, shape);
  if (!found.defined()) return found;
  taken_.emplace_back(name, convert(found));
  return taken_.back().second;
}

at::Tensor WeightLoader::take_if(bool present, const std::string& name, at::IntArrayRef shape) {
  return present ? take(name, shape) : at::Tensor();
}

at::Tensor WeightLoader::take_head(const at::Tensor& embedding, bool tied, at::IntArrayRef shape) {
  const std::string name = "lm_head.weight";
  if (!tied) return take(name, shape);
  const std::optional<at::Tensor> stored = weights_->take_optional(name, shape);
  if (!stored.has_value() || !stored->defined() || !embedding.defined()) return embedding;
  const at::Tensor head = convert(*stored);
  if (at::equal(head, embedding)) return embedding;
  taken_.emplace_back(name, head);
  return head;
}

NamedParameters WeightLoader::finish() const {
  weights_->require_all_used();
  for (const auto& [name, tensor] : taken_) {
    const auto& [first_name, first] = taken_.front();
    require(tensor.scalar_type() == first.scalar_type(),
            "weights of several dtypes: '{}' is {}, '{}' is {}; choose one with --dtype", first_name,
            dtype_name(first.scalar_type()), name, dtype_name(tensor.scalar_type()));
  }
  return taken_;
}

namespace {

/// The weights of a folder, or with `init` those that it makes.
std::unique_ptr<CausalLM> open_model(const std::filesystem::path& folder, const LoadOptions& options,
                                     const std::function<WeightInit(const ConfigFields&)>& init) {
  const HfFolder opened = HfFolder::open(folder);
  const std::string config_file = (folder / "config.json").string();
  nlohmann::json chosen = opened.config();
  const ConfigFields config(chosen, config_file);
  const ConfigFields generation(opened.generation_config(), (folder / "generation_config.json").string());
  require(config.has("model_type"), "{}: the field 'model_type' is missing", config.file());
  const Family& family = find_family(config.text("model_type", ""), config.file());
  if (options.rope_scaling.has_value()) {
    require(family.rotary, "{}: --rope-scaling: {} has learned positions, not rotary ones", config_file,
            family.model_type);
    chosen = with_rope_scaling(chosen, *options.rope_scaling, config_file);
  }
  require(!config.has("quantization_config"), "{}: quantised checkpoints (quantization_config) are not supported",
          config.file());

  ModelConfig common;
  common.model_type = family.model_type;
  common.eos_ids = united(config.token_ids("eos_token_id"), generation.token_ids("eos_token_id"));
  for (const ConfigFields* place : {&config, &generation}) {
    const std::vector<int64_t> bos = place->token_ids("bos_token_id");
    if (!common.bos_id.has_value() && !bos.empty()) common.bos_id = bos.front();
  }
  StateDict stored = init ? StateDict({}, folder.string()) : opened.weights();
  LoadOptions resolved = options;
  if (options.weights == WeightMemory::kAuto) {
    const bool fits = stored.size_in(options.dtype) <= available_memory() / 2;
    resolved.weights = fits ? WeightMemory::kResident : WeightMemory::kMapped;
  }
  WeightLoader weights(stored, resolved, init ? init(config) : WeightInit());
  return family.load({config, weights, stored, std::move(common)});
}

}  // namespace

std::unique_ptr<CausalLM> load_model(const std::filesystem::path& folder, const LoadOptions& options) {
  return open_model(folder, options, {});
}

std::unique_ptr<CausalLM> init_model(const std::filesystem::path& folder, uint64_t seed, const LoadOptions& options) {
  return open_model(folder, options, [&](const ConfigFields& config) { return random_weights(config, seed); });
}

}  // namespace focus
