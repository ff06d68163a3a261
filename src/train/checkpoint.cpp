#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "weights/safetensors.h"

namespace focus {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kStateFile = "trainer_state.json";
constexpr const char* kTensorFile = "trainer_state.safetensors";
constexpr int64_t kFormatVersion = 1;

/// The step of a checkpoint folder's name, nullopt for other names.
std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string(), prefix = kPrefix;
  if (!name.starts_with(prefix)) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || rest != end) return std::nullopt;
  return step;
}

/// Complete checkpoints by ascending step.
std::vector<std::pair<int64_t, fs::path>> checkpoints_in(const fs::path& folder) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::optional<int64_t> step = step_of(entry.path());
    if (step && fs::exists(entry.path() / kStateFile) && fs::exists(entry.path() / kTensorFile)) {
      found.emplace_back(*step, entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

void save_checkpoint(const fs::path& folder, const Checkpoint& checkpoint, int64_t keep) {
  nlohmann::json state = checkpoint.state;
  state["format_version"] = kFormatVersion;
  state["step"] = checkpoint.step;
  PendingFolder pending(folder / fmt::format("{}{}", kPrefix, checkpoint.step));
  write_safetensors(pending.path() / kTensorFile, checkpoint.tensors);
  write_file_atomically(pending.path() / kStateFile, json_text(state, 2) + "\n");
  pending.publish();
  if (keep <= 0) return;
  auto all = checkpoints_in(folder);
  for (size_t i = 0; i + static_cast<size_t>(keep) < all.size(); ++i) {
    discard_folder(all[i].second);
  }
}

std::optional<fs::path> latest_checkpoint(const fs::path& folder) {
  const auto all = checkpoints_in(folder);
  if (all.empty()) return std::nullopt;
  return all.back().second;
}

Checkpoint load_checkpoint(const fs::path& folder) {
  const fs::path file = folder / kStateFile;
  Checkpoint checkpoint;
  checkpoint.state = read_json_object(file);
  const auto integer = [&](const char* name) {
    const auto at = checkpoint.state.find(name);
    require(at != checkpoint.state.end() && at->is_number_integer() && *at >= 0,
            "{}: not a checkpoint's state: \"{}\" is {}, expected an integer", file.string(), name,
            at == checkpoint.state.end() ? "missing" : json_excerpt(*at));
    return at->get<int64_t>();
  };
  checkpoint.step = integer("step");
  const int64_t version = integer("format_version");
  require(version == kFormatVersion, "{}: format version {}, expected {}", file.string(), version, kFormatVersion);
  for (const char* name : {"identity", "data"}) {
    const auto at = checkpoint.state.find(name);
    require(at == checkpoint.state.end() || at->is_object(), "{}: not a checkpoint's state: \"{}\" is not an object",
            file.string(), name);
  }
  const SafetensorsFile tensors = SafetensorsFile::open(folder / kTensorFile);
  for (const std::string& name : tensors.names()) checkpoint.tensors.emplace_back(name, tensors.tensor(name));
  return checkpoint;
}

}  // namespace focus
