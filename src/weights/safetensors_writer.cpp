#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "weights/dtype.h"
#include "weights/safetensors.h"
#include "weights/safetensors_header.h"

namespace focus {

void write_safetensors(const std::filesystem::path& file,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    require(names.insert(name).second, "{}: the tensor name '{}' is given twice", file.string(), name);
    require(name != "__metadata__", "{}: '__metadata__' is reserved and cannot name a tensor", file.string());
    require(tensor.defined(), "{}: tensor '{}' is undefined", file.string(), name);
    require(safetensors_name_of(tensor.scalar_type()).has_value(),
            "{}: tensor '{}' has dtype {}, which the format lacks", file.string(), name,
            dtype_name(tensor.scalar_type()));
  }
  // Wide elements first, so that every tensor is aligned to its own element size.
  std::vector<const std::pair<std::string, at::Tensor>*> order;
  for (const auto& pair : tensors) order.push_back(&pair);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->second.element_size() > b->second.element_size(); });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto* pair : order) {
    const at::Tensor& tensor = pair->second;
    header[pair->first] = {{"dtype", *safetensors_name_of(tensor.scalar_type())},
                           {"shape", tensor.sizes().vec()},
                           {"data_offsets", {offset, offset + tensor.nbytes()}}};
    offset += tensor.nbytes();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail("{}: a tensor name or metadata text is not valid UTF-8", file.string());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  require(text.size() <= kMaxSafetensorsHeader, "{}: the header would take {} bytes, more than the limit of {}",
          file.string(), text.size(), kMaxSafetensorsHeader);

  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  std::vector<std::string_view> parts = {length, text};
  std::vector<at::Tensor> alive;
  for (const auto* pair : order) {
    alive.push_back(pair->second.detach().to(at::kCPU).contiguous());
    parts.emplace_back(static_cast<const char*>(alive.back().const_data_ptr()), alive.back().nbytes());
  }
  write_file_atomically(file, parts);
}

}  // namespace focus
