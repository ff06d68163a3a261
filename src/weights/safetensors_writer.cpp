#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "weights/dtype.h"
#include "weights/safetensors.h"
#include "weights/safetensors_header.h"

namespace focus {

namespace {

/// A file under a temporary name beside its target; removed unless it is committed.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path target)
      : target_(std::move(target)), path_(fmt::format("{}.tmp.{}", target_.string(), ::getpid())) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    require(descriptor_ >= 0, "{}: cannot write: {}", target_.string(), std::strerror(errno));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!committed_) ::unlink(path_.c_str());
  }

  void write(const char* data, size_t size) {
    for (size_t done = 0; done < size;) {
      const ssize_t written = ::write(descriptor_, data + done, std::min<size_t>(size - done, size_t{1} << 30));
      if (written < 0 && errno == EINTR) continue;
      require(written > 0, "{}: cannot write ({} of {} bytes of a part written): {}", target_.string(), done, size,
              std::strerror(errno));
      done += static_cast<size_t>(written);
    }
  }

  /// On disk under its final name, or an Error.
  void commit() {
    require(::fsync(descriptor_) == 0, "{}: cannot write to disk: {}", target_.string(), std::strerror(errno));
    const int closed = ::close(std::exchange(descriptor_, -1));
    require(closed == 0, "{}: cannot write to disk: {}", target_.string(), std::strerror(errno));
    require(::rename(path_.c_str(), target_.c_str()) == 0, "{}: cannot rename the finished file: {}", target_.string(),
            std::strerror(errno));
    committed_ = true;
    const std::filesystem::path folder = target_.has_parent_path() ? target_.parent_path() : ".";
    // Makes the new name durable; the file itself is complete, so a file system that cannot do this is no failure.
    const int folder_descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_descriptor >= 0) {
      ::fsync(folder_descriptor);
      ::close(folder_descriptor);
    }
  }

 private:
  std::filesystem::path target_;
  std::string path_;
  int descriptor_ = -1;
  bool committed_ = false;
};

}  // namespace

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

  TemporaryFile out(file);
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  out.write(length.data(), length.size());
  out.write(text.data(), text.size());
  for (const auto* pair : order) {
    const at::Tensor dense = pair->second.detach().to(at::kCPU).contiguous();
    out.write(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
  }
  out.commit();
}

}  // namespace focus
