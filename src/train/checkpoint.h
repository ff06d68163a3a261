#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace focus {

/// What a training run needs to go on exactly where it was (docs/formats.md): `checkpoint-<step>/` with
/// trainer_state.json and trainer_state.safetensors.
struct Checkpoint {
  int64_t step = 0;
  nlohmann::json state;  ///< Stage, position in the data, the options that shape the run.
  std::vector<std::pair<std::string, at::Tensor>> tensors;
};

/// Writes `folder/checkpoint-<step>` whole or not at all, then removes all but the newest `keep` (0: keep all).
void save_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint, int64_t keep);

/// The newest complete checkpoint in `folder`, if any.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder);

/// Reads a `checkpoint-<step>` folder. Throws Error naming the file and what is wrong with it.
Checkpoint load_checkpoint(const std::filesystem::path& folder);

}  // namespace focus
