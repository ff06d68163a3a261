#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "weights/state_dict.h"

namespace focus {

/// A model folder in Hugging Face form: config.json, maybe generation_config.json, and weights as model.safetensors or
/// as model.safetensors.index.json with its shards.
class HfFolder {
 public:
  /// Reads the configuration files. Throws Error naming the folder or file that is absent or no JSON object.
  static HfFolder open(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  const nlohmann::json& config() const { return config_; }
  const nlohmann::json& generation_config() const { return generation_config_; }  ///< An empty object if there is none.

  /// All weights as memory-mapped views. With an index only the shards it names are read. Throws Error naming: a shard
  /// that is missing or lies outside the folder, a tensor of the index that its shard lacks, a tensor that two shards
  /// hold, and whatever SafetensorsFile finds wrong.
  StateDict weights() const;

 private:
  std::filesystem::path path_;
  nlohmann::json config_;
  nlohmann::json generation_config_;
};

}  // namespace focus
