#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "models/model.h"
#include "weights/dtype.h"
#include "weights/hf_folder.h"
#include "weights/safetensors.h"

namespace focus {

namespace {

namespace fs = std::filesystem;

/// Beside config.json: what tokenizers and generation read.
constexpr const char* kCopied[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",   "vocab.json",
    "merges.txt",     "tokenizer.model",       "generation_config.json",  "chat_template.jinja", "chat_template.json"};

}  // namespace

void save_model(const fs::path& folder, const CausalLM& model, const fs::path& source, at::ScalarType dtype) {
  nlohmann::json config = read_json_object(source / "config.json");
  config.erase("torch_dtype");
  config["dtype"] = dtype_name(dtype);
  PendingFolder pending(folder, {".safetensors", ".safetensors.index.json", "focus"});
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [name, tensor] : model.parameters()) {
    tensors.emplace_back(name, tensor.detach().to(at::kCPU, dtype).contiguous());
  }
  write_safetensors(pending.path() / "model.safetensors", tensors, {{"format", "pt"}});
  write_file_atomically(pending.path() / "config.json", json_text(config, 2) + "\n");
  for (const char* name : kCopied) {
    if (!fs::exists(source / name)) continue;
    write_file_atomically(pending.path() / name, read_file(source / name));
  }
  pending.publish();
}

}  // namespace focus
