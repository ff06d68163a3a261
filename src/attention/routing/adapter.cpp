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

// Version 2 had no head scales and always lists.
constexpr int64_t kFormatVersion = 3, kOldestVersion = 2;
constexpr const char* kScoreFactor = "score_factor";
constexpr const char* kOutputGain = "output_gain";
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

std::vector<int64_t> numbers_of(const auto& by_layer) {
  std::vector<int64_t> layers;
  for (const auto& [number, layer] : by_layer) layers.push_back(number);
  return layers;
}

json config_json(const Adapter& adapter, at::ScalarType dtype) {
  json fields = {{"peft_type", "FOCUS"},
                 {"format_version", kFormatVersion},
                 {"task_type", "CAUSAL_LM"},
                 {"inference_mode", true},
                 {"base_model_name_or_path", adapter.base_model_name_or_path},
                 {"base_fingerprint", adapter.base_fingerprint},
                 {"module", adapter.module},
                 {"layers_to_transform", json::array()},
                 {"scaled_layers", json::array()},
                 {"dtype", dtype == at::kBFloat16 ? "bfloat16" : "float32"},
                 {"training", adapter.training}};
  if (adapter.scales != nullptr && !adapter.scales->empty()) {
    fields.update({{"scaled_layers", numbers_of(*adapter.scales)},
                   {"query_heads", adapter.scales->begin()->second.score_factor.size(0)}});
  }
  if (adapter.router == nullptr) return fields;
  const Router& router = *adapter.router;
  const RoutingConfig& config = router.config();
  fields.update({{"layers_to_transform", numbers_of(router.layers())},
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
                 {"global_group", config.global_group}});
  return fields;
}

std::string model_card(const Adapter& adapter) {
  const std::string head = fmt::format(
      "---\nlibrary_name: focus\nbase_model: {}\ntags:\n- focus\n- sparse-attention\n---\n\n# Focus adapter\n\n",
      json_text(adapter.base_model_name_or_path));
  const size_t scaled = adapter.scales == nullptr ? 0 : adapter.scales->size();
  if (adapter.router == nullptr) {
    return fmt::format(
        "{}Trained scores' factors and output gains of the query heads of {} layers of `{}`, for full attention. The "
        "base model's weights (fingerprint {}) are unchanged.\n",
        head, scaled, adapter.base_model_name_or_path, adapter.base_fingerprint);
  }
  const RoutingConfig& config = adapter.router->config();
  return fmt::format(
      "{}"
      "Learned-group sparse attention for `{}`: {} layers with {} list set{} each. The base model's weights are "
      "unchanged.\n\n"
      "| setting | value |\n|---|---|\n"
      "| form | {} |\n| layers with scaled heads | {} |\n| groups | {} |\n| groups per token | {} |\n| window | {} "
      "|\n| sinks | {} |\n| group dim | {} "
      "|\n| tau | {} |\n"
      "| base fingerprint | {} |\n\n"
      "Use it with `focus eval --model <base> --adapter <this folder>` and `focus generate` likewise. "
      "`adapter_config.json` tells "
      "how it was trained.\n",
      head, adapter.base_model_name_or_path, adapter.router->layers().size(), adapter.router->head_sets(),
      adapter.router->head_sets() == 1 ? "" : "s", config.symmetric ? "symmetric groups" : "lists and probes", scaled,
      config.groups, config.groups_per_token, config.window, config.sinks, config.group_dim, config.tau,
      adapter.base_fingerprint);
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
  require(version >= kOldestVersion && version <= kFormatVersion, "{}: format_version {}, this program reads {} to {}",
          file.string(), version, kOldestVersion, kFormatVersion);
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
  const bool scaled = adapter.scales != nullptr && !adapter.scales->empty();
  require(adapter.router != nullptr || scaled, "adapter: there is nothing to save");
  require(dtype == at::kFloat || dtype == at::kBFloat16, "adapter: dtype {}, expected float32 or bfloat16",
          c10::toString(dtype));
  require(has_one_mark(adapter.module), "adapter: the module name {} must hold {} once", adapter.module, kLayerMark);
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  const auto add = [&](int64_t layer, const std::string& name, const at::Tensor& stored) {
    require(at::isfinite(stored).all().item<bool>(), "adapter: layer {}: {} is not finite in {}", layer, name,
            c10::toString(stored.scalar_type()));
    tensors.emplace_back(tensor_key(adapter.module, layer, name), stored);
  };
  if (adapter.router != nullptr) {
    const Router& router = *adapter.router;
    const auto layout = LayerRouter::layout(router.config(), router.hidden_size(), router.head_sets());
    for (const auto& [number, layer] : router.layers()) {
      for (const auto& [name, shape] : layout) {
        const at::Tensor& tensor = layer.tensor(name);
        add(number, name, name == "potentials" || name == "probe_exponent" ? tensor : tensor.to(dtype));
      }
    }
  }
  if (scaled) {
    const at::IntArrayRef heads = adapter.scales->begin()->second.score_factor.sizes();
    for (const auto& [number, scale] : *adapter.scales) {
      for (const auto& [name, tensor] :
           {std::pair(kScoreFactor, scale.score_factor), {kOutputGain, scale.output_gain}}) {
        require(tensor.dim() == 1 && tensor.sizes() == heads, "adapter: layer {}: {} has the shape {}, expected {}",
                number, name, shape_text(tensor.sizes()), shape_text(heads));
        add(number, name, tensor.detach().to(at::kCPU, at::kFloat));
      }
    }
  }
  PendingFolder pending(folder);
  write_safetensors(pending.path() / kWeightsFile, tensors, {{"format", "pt"}});
  write_file_atomically(pending.path() / kConfigFile, json_text(config_json(adapter, dtype), 2) + "\n");
  write_file_atomically(pending.path() / "README.md", model_card(adapter));
  pending.publish();
}

std::string adapter_digest(const Adapter& adapter) {
  uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
    const auto* bytes = static_cast<const unsigned char*>(plain.const_data_ptr());
    for (size_t i = 0; i < plain.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
  };
  if (adapter.router != nullptr) {
    const Router& router = *adapter.router;
    for (const auto& [layer, weights] : router.layers()) {
      for (const auto& [name, shape] : LayerRouter::layout(router.config(), router.hidden_size(), router.head_sets())) {
        add(weights.tensor(name));
      }
    }
  }
  if (adapter.scales != nullptr) {
    for (const auto& [layer, scale] : *adapter.scales) {
      add(scale.score_factor);
      add(scale.output_gain);
    }
  }
  return fmt::format("{:016x}", hash);
}

Adapter load_adapter(const std::filesystem::path& folder, const AdapterLoadOptions& options) {
  require(std::filesystem::is_directory(folder), "adapter {}: no such folder", folder.string());
  const std::filesystem::path config_file = folder / kConfigFile;
  require(std::filesystem::exists(config_file), "adapter {}: it has no {}", folder.string(), kConfigFile);
  require(std::filesystem::exists(folder / kWeightsFile), "adapter {}: it has no {}", folder.string(), kWeightsFile);
  const json json_config = read_config(config_file);

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
  const SafetensorsFile weights = SafetensorsFile::open(folder / kWeightsFile);
  std::set<std::string> expected;
  const auto read = [&](int64_t layer, const std::string& name, const std::vector<int64_t>& shape) {
    const std::string key = tensor_key(adapter.module, layer, name);
    expected.insert(key);
    return read_tensor(weights, key, shape);
  };
  const auto check_number = [&](int64_t number, bool seen, const char* list) {
    require(number >= 0 && number < 1'000'000 && !seen, "{}: \"{}\" holds {} twice or out of range",
            config_file.string(), list, number);
  };
  if (!layers.empty()) {
    const RoutingConfig config = routing_config(json_config, config_file);
    const auto layout = LayerRouter::layout(config, count_field(json_config, config_file, "hidden_size"),
                                            count_field(json_config, config_file, "list_sets"));
    std::map<int64_t, LayerRouter> routers;
    for (const int64_t number : layers) {
      check_number(number, routers.count(number) != 0, "layers_to_transform");
      LayerRouter& layer = routers[number];
      for (const auto& [name, shape] : layout) layer.tensor(name) = read(number, name, shape);
    }
    try {
      adapter.router = std::make_shared<Router>(config, std::move(routers));
    } catch (const Error& e) {
      fail("{}: {}", weights.path().string(), e.what());
    }
  }
  std::vector<int64_t> scaled;
  if (json_config.at("format_version") != kOldestVersion) {
    scaled = field<std::vector<int64_t>>(json_config, config_file, "scaled_layers", "a list of layer numbers");
  }
  if (!scaled.empty()) {
    const int64_t heads = count_field(json_config, config_file, "query_heads");
    HeadScales scales;
    for (const int64_t number : scaled) {
      check_number(number, scales.count(number) != 0, "scaled_layers");
      scales[number] = {.score_factor = read(number, kScoreFactor, {heads}),
                        .output_gain = read(number, kOutputGain, {heads})};
    }
    adapter.scales = std::make_shared<const HeadScales>(std::move(scales));
  }
  for (const std::string& name : weights.names()) {
    require(expected.count(name) != 0, "{}: the key {} is not part of this adapter", weights.path().string(), name);
  }
  require(adapter.router != nullptr || adapter.scales != nullptr, "{}: it holds neither lists nor head scales",
          config_file.string());
  return adapter;
}

}  // namespace focus
