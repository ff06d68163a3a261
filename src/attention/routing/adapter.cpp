#include "attention/routing/adapter.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "weights/safetensors.h"

namespace focus {

namespace {

using nlohmann::json;

constexpr int64_t kFormatVersion = 2;
constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kWeightsFile = "adapter_model.safetensors";
constexpr const char* kLayerMark = "{}";

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

std::string tensor_key(const std::string& module, int64_t layer, const std::string& tensor) {
  std::string name = module;
  name.replace(name.find(kLayerMark), 2, std::to_string(layer));
  return "base_model.model." + name + ".focus." + tensor;
}

bool has_one_mark(const std::string& module) {
  const size_t at = module.find(kLayerMark);
  return at != std::string::npos && module.find(kLayerMark, at + 1) == std::string::npos;
}

json config_json(const Adapter& adapter, at::ScalarType dtype) {
  const Router& router = *adapter.router;
  const RoutingConfig& config = router.config();
  std::vector<int64_t> layers;
  for (const auto& [number, layer] : router.layers()) layers.push_back(number);
  return {{"peft_type", "FOCUS"},
          {"format_version", kFormatVersion},
          {"task_type", "CAUSAL_LM"},
          {"inference_mode", true},
          {"base_model_name_or_path", adapter.base_model_name_or_path},
          {"base_fingerprint", adapter.base_fingerprint},
          {"module", adapter.module},
          {"layers_to_transform", layers},
          {"hidden_size", router.hidden_size()},
          {"list_sets", router.head_sets()},
          {"groups", config.groups},
          {"groups_per_token", config.groups_per_token},
          {"window", config.window},
          {"sinks", config.sinks},
          {"group_dim", config.group_dim},
          {"tau", config.tau},
          {"sinkhorn_iters", config.sinkhorn_iters},
          {"shared", config.shared},
          {"symmetric", config.symmetric},
          {"global_group", config.global_group},
          {"dtype", dtype == at::kBFloat16 ? "bfloat16" : "float32"},
          {"training", adapter.training}};
}

std::string model_card(const Adapter& adapter) {
  const RoutingConfig& config = adapter.router->config();
  return fmt::format(
      "---\nlibrary_name: focus\nbase_model: {}\ntags:\n- focus\n- sparse-attention\n---\n\n"
      "# Focus adapter\n\n"
      "Learned-group sparse attention for `{}`: {} layers with {} list set{} each. The base model's weights are "
      "unchanged.\n\n"
      "| setting | value |\n|---|---|\n"
      "| form | {} |\n| groups | {} |\n| groups per token | {} |\n| window | {} |\n| sinks | {} |\n| group dim | {} "
      "|\n| tau | {} |\n"
      "| base fingerprint | {} |\n\n"
      "Use it with `focus eval --model <base> --adapter <this folder>` and `focus generate` likewise. "
      "`adapter_config.json` tells "
      "how it was trained.\n",
      json_text(adapter.base_model_name_or_path), adapter.base_model_name_or_path, adapter.router->layers().size(),
      adapter.router->head_sets(), adapter.router->head_sets() == 1 ? "" : "s",
      config.symmetric ? "symmetric groups" : "lists and probes", config.groups, config.groups_per_token, config.window,
      config.sinks, config.group_dim, config.tau, adapter.base_fingerprint);
}

// A field of the configuration, or an Error that names file and field.
template <typename T>
T field(const json& config, const std::filesystem::path& file, const char* name, const char* expected) {
  const auto at = config.find(name);
  require(at != config.end(), "{}: \"{}\" is missing", file.string(), name);
  try {
    if constexpr (std::is_same_v<T, int64_t>) require(at->is_number_integer(), "not an integer");
    return at->get<T>();
  } catch (const std::exception&) {
    fail("{}: \"{}\" is {}, expected {}", file.string(), name, json_excerpt(*at), expected);
  }
}

int64_t count_field(const json& config, const std::filesystem::path& file, const char* name) {
  const auto value = field<int64_t>(config, file, name, "a positive integer");
  require(value > 0 && value <= 1'000'000, "{}: \"{}\" is {}, expected a positive integer", file.string(), name, value);
  return value;
}

RoutingConfig routing_config(const json& json_config, const std::filesystem::path& file) {
  RoutingConfig config;
  config.groups = field<int64_t>(json_config, file, "groups", "an integer");
  config.groups_per_token = field<int64_t>(json_config, file, "groups_per_token", "an integer");
  config.window = field<int64_t>(json_config, file, "window", "an integer");
  config.sinks = field<int64_t>(json_config, file, "sinks", "an integer");
  config.group_dim = field<int64_t>(json_config, file, "group_dim", "an integer");
  config.tau = field<double>(json_config, file, "tau", "a number");
  config.sinkhorn_iters = field<int64_t>(json_config, file, "sinkhorn_iters", "an integer");
  config.shared = field<bool>(json_config, file, "shared", "true or false");
  config.symmetric = field<bool>(json_config, file, "symmetric", "true or false");
  config.global_group = field<bool>(json_config, file, "global_group", "true or false");
  try {
    config.validate();
  } catch (const UsageError& e) {
    fail("{}: {}", file.string(), e.what());
  }
  return config;
}

json read_config(const std::filesystem::path& file) {
  json config = read_json_object(file);
  const auto type = field<std::string>(config, file, "peft_type", "FOCUS");
  require(type == "FOCUS", "{}: peft_type {}, expected FOCUS", file.string(), type);
  const auto version = field<int64_t>(config, file, "format_version", "an integer");
  require(version == kFormatVersion, "{}: format_version {}, this program reads {}", file.string(), version,
          kFormatVersion);
  return config;
}

at::Tensor read_tensor(const SafetensorsFile& weights, const std::string& key, const std::vector<int64_t>& shape) {
  const std::string file = weights.path().string();
  require(weights.contains(key), "{}: the key {} is missing", file, key);
  const at::Tensor stored = weights.tensor(key);
  require(stored.sizes() == at::IntArrayRef(shape), "{}: {} has the shape {}, expected {}", file, key,
          shape_text(stored.sizes()), shape_text(shape));
  const auto dtype = stored.scalar_type();
  require(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf,
          "{}: {} is {}, expected float32, bfloat16 or float16", file, key, c10::toString(dtype));
  at::Tensor values = stored.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  require(at::isfinite(values).all().item<bool>(), "{}: {} has values that are not finite", file, key);
  return values;
}

}  // namespace

void save_adapter(const std::filesystem::path& folder, const Adapter& adapter, at::ScalarType dtype) {
  require(adapter.router != nullptr, "adapter: there is no router to save");
  require(dtype == at::kFloat || dtype == at::kBFloat16, "adapter: dtype {}, expected float32 or bfloat16",
          c10::toString(dtype));
  require(has_one_mark(adapter.module), "adapter: the module name {} must hold {} once", adapter.module, kLayerMark);
  const Router& router = *adapter.router;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [number, layer] : router.layers()) {
    for (const auto& [name, shape] : LayerRouter::layout(router.config(), router.hidden_size(), router.head_sets())) {
      const at::Tensor& tensor = layer.tensor(name);
      const at::Tensor stored = name == "potentials" || name == "probe_exponent" ? tensor : tensor.to(dtype);
      require(at::isfinite(stored).all().item<bool>(), "adapter: layer {}: {} is not finite in {}", number, name,
              c10::toString(dtype));
      tensors.emplace_back(tensor_key(adapter.module, number, name), stored);
    }
  }
  PendingFolder pending(folder);
  write_safetensors(pending.path() / kWeightsFile, tensors, {{"format", "pt"}});
  write_file_atomically(pending.path() / kConfigFile, json_text(config_json(adapter, dtype), 2) + "\n");
  write_file_atomically(pending.path() / "README.md", model_card(adapter));
  pending.publish();
}

Adapter load_adapter(const std::filesystem::path& folder, const AdapterLoadOptions& options) {
  require(std::filesystem::is_directory(folder), "adapter {}: no such folder", folder.string());
  const std::filesystem::path config_file = folder / kConfigFile;
  require(std::filesystem::exists(config_file), "adapter {}: it has no {}", folder.string(), kConfigFile);
  require(std::filesystem::exists(folder / kWeightsFile), "adapter {}: it has no {}", folder.string(), kWeightsFile);
  const json json_config = read_config(config_file);
  const RoutingConfig config = routing_config(json_config, config_file);

  Adapter adapter;
  adapter.base_model_name_or_path = field<std::string>(json_config, config_file, "base_model_name_or_path", "a text");
  adapter.base_fingerprint = field<std::string>(json_config, config_file, "base_fingerprint", "a text");
  adapter.module = field<std::string>(json_config, config_file, "module", "a text");
  require(has_one_mark(adapter.module), "{}: \"module\" is {}, expected a name with {} for the layer number",
          config_file.string(), adapter.module, kLayerMark);
  if (json_config.contains("training")) adapter.training = json_config.at("training");
  if (options.base_fingerprint.has_value()) {
    adapter.base_matches = *options.base_fingerprint == adapter.base_fingerprint;
    require(
        adapter.base_matches || options.force,
        "adapter {}: it was trained on {} (fingerprint {}), not on this model (fingerprint {}); --force uses it anyway",
        folder.string(), adapter.base_model_name_or_path, adapter.base_fingerprint, *options.base_fingerprint);
  }

  const auto layers =
      field<std::vector<int64_t>>(json_config, config_file, "layers_to_transform", "a list of layer numbers");
  const int64_t hidden_size = count_field(json_config, config_file, "hidden_size");
  const int64_t list_sets = count_field(json_config, config_file, "list_sets");
  const SafetensorsFile weights = SafetensorsFile::open(folder / kWeightsFile);
  std::map<int64_t, LayerRouter> routers;
  std::set<std::string> expected;
  for (const int64_t number : layers) {
    require(number >= 0 && number < 1'000'000 && routers.count(number) == 0,
            "{}: \"layers_to_transform\" holds {} twice or out of range", config_file.string(), number);
    LayerRouter& layer = routers[number];
    for (const auto& [name, shape] : LayerRouter::layout(config, hidden_size, list_sets)) {
      const std::string key = tensor_key(adapter.module, number, name);
      layer.tensor(name) = read_tensor(weights, key, shape);
      expected.insert(key);
    }
  }
  for (const std::string& name : weights.names()) {
    require(expected.count(name) != 0, "{}: the key {} is not part of this adapter", weights.path().string(), name);
  }
  try {
    adapter.router = std::make_shared<Router>(config, std::move(routers));
  } catch (const Error& e) {
    fail("{}: {}", weights.path().string(), e.what());
  }
  return adapter;
}

}  // namespace focus
