#include "weights/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "weights/safetensors_header.h"

namespace focus {

namespace {

/// A whole file in private, copy-on-write pages.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& file) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // A FIFO would wait.
    require(descriptor >= 0, "{}: cannot open: {}", file.string(), std::strerror(errno));
    struct stat status = {};
    const bool ok = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    size_ = ok ? static_cast<size_t>(status.st_size) : 0;
    // MAP_NORESERVE: a file larger than memory may be mapped, since few of its pages will be written to.
    if (ok && size_ > 0) {
      data_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
    }
    const int error = errno;
    ::close(descriptor);
    require(ok, "{}: not a regular file", file.string());
    require(data_ != MAP_FAILED, "{}: cannot map {} bytes: {}", file.string(), size_, std::strerror(error));
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (data_ != nullptr && data_ != MAP_FAILED) ::munmap(data_, size_);
  }

  char* data() const { return static_cast<char*>(data_); }
  size_t size() const { return size_; }
  std::string_view image() const { return {data(), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(const std::filesystem::path& file)
      : path(file), mapping(file), header(parse_safetensors_header(mapping.image(), file.string())) {
    for (size_t i = 0; i < header.entries.size(); ++i) index.emplace(header.entries[i].name, i);
  }

  std::filesystem::path path;
  MappedFile mapping;
  SafetensorsHeader header;
  std::unordered_map<std::string, size_t> index;
};

SafetensorsFile::SafetensorsFile(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& file) {
  return SafetensorsFile(std::make_shared<Impl>(file));
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  names.reserve(impl_->header.entries.size());
  for (const SafetensorsEntry& entry : impl_->header.entries) names.push_back(entry.name);
  return names;
}

bool SafetensorsFile::contains(const std::string& name) const {
  return impl_->index.contains(name);
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const auto found = impl_->index.find(name);
  require(found != impl_->index.end(), "{}: no tensor named '{}'", impl_->path.string(), name);
  const SafetensorsEntry& entry = impl_->header.entries[found->second];
  char* data = impl_->mapping.data() + impl_->header.data_start + entry.begin;
  // A bool whose byte is neither 0 nor 1 is undefined behaviour, so bools are rebuilt from bytes.
  if (entry.dtype == at::kBool) return at::from_blob(data, entry.shape, at::kByte).ne(0);
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(entry.dtype) != 0) {
    at::Tensor copy = at::empty(entry.shape, entry.dtype);
    if (copy.numel() > 0) std::memcpy(copy.data_ptr(), data, entry.end - entry.begin);
    return copy;
  }
  return at::from_blob(
      data, entry.shape, [keep = impl_](void*) {}, entry.dtype);
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->header.metadata;
}

const std::filesystem::path& SafetensorsFile::path() const {
  return impl_->path;
}

void release_pages(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.is_contiguous()) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + tensor.nbytes()) / page * page;
  // MADV_PAGEOUT never loses data, whatever memory it is; that it may fail does no harm.
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_PAGEOUT);
}

}  // namespace focus
