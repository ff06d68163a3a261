#include "weights/hf_folder.h"

#include <map>

#include "base/error.h"
#include "base/json_reader.h"
#include "weights/safetensors.h"

namespace focus {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

void append_all(const SafetensorsFile& file, NamedTensors& tensors) {
  for (const std::string& name : file.names()) tensors.emplace_back(name, file.tensor(name));
}

/// Shard file name -> tensors the index places in it.
std::map<std::string, std::vector<std::string>> read_index(const fs::path& index_file) {
  const json index = read_json_object(index_file);
  require(index.contains("weight_map") && index["weight_map"].is_object(), "{}: no weight_map object",
          index_file.string());
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    require(shard.is_string(), "{}: the shard of '{}' is not a file name", index_file.string(), tensor);
    const std::string& name = shard.get_ref<const std::string&>();
    require(!name.empty() && name != "." && name != ".." &&
                name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos,
            "{}: the shard name '{}' of '{}' is not a plain file name", index_file.string(), name, tensor);
    shards[name].push_back(tensor);
  }
  require(!shards.empty(), "{}: weight_map is empty", index_file.string());
  return shards;
}

NamedTensors read_shards(const fs::path& folder, const fs::path& index_file) {
  NamedTensors tensors;
  std::map<std::string, std::string> home;
  for (const auto& [shard, listed] : read_index(index_file)) {
    require(fs::exists(folder / shard), "{}: the shard '{}' is missing (it should hold {} tensors)",
            index_file.string(), shard, listed.size());
    const SafetensorsFile file = SafetensorsFile::open(folder / shard);
    for (const std::string& name : listed) {
      require(file.contains(name), "{}: tensor '{}' is not in its shard '{}'", index_file.string(), name, shard);
    }
    for (const std::string& name : file.names()) {
      const auto [previous, inserted] = home.emplace(name, shard);
      require(inserted, "{}: tensor '{}' is in two shards, '{}' and '{}'", index_file.string(), name, previous->second,
              shard);
    }
    append_all(file, tensors);
  }
  return tensors;
}

}  // namespace

HfFolder HfFolder::open(const fs::path& folder) {
  require(fs::exists(folder), "{}: no such model folder", folder.string());
  require(fs::is_directory(folder), "{}: not a folder (a model is a folder with config.json and model.safetensors)",
          folder.string());
  const fs::path config_file = folder / "config.json";
  require(fs::exists(config_file), "{}: no config.json in the model folder", folder.string());
  HfFolder opened;
  opened.path_ = folder;
  opened.config_ = read_json_object(config_file);
  const fs::path generation_file = folder / "generation_config.json";
  opened.generation_config_ = fs::exists(generation_file) ? read_json_object(generation_file) : json::object();
  return opened;
}

StateDict HfFolder::weights() const {
  const fs::path single = path_ / "model.safetensors";
  const fs::path index = path_ / "model.safetensors.index.json";
  NamedTensors tensors;
  if (fs::exists(single)) {
    append_all(SafetensorsFile::open(single), tensors);
  } else if (fs::exists(index)) {
    tensors = read_shards(path_, index);
  } else {
    const bool pickled = fs::exists(path_ / "pytorch_model.bin") || fs::exists(path_ / "pytorch_model.bin.index.json");
    fail("{}: neither model.safetensors nor model.safetensors.index.json in the model folder{}", path_.string(),
         pickled ? " (pytorch_model.bin is not read: focus convert makes a folder that is)" : "");
  }
  return StateDict(std::move(tensors), path_.string());
}

}  // namespace focus
