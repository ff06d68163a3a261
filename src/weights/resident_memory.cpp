#include "weights/resident_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace focus {

namespace {

constexpr size_t kHugePage = size_t{1} << 21;
constexpr size_t kRegionBytes = size_t{1} << 26;
constexpr size_t kAlignment = 64;  // a cache line, and the widest vector

size_t rounded_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

/// Anonymous pages, of which only those written to take memory.
class ResidentMemory::Region {
 public:
  explicit Region(size_t bytes) : size_(bytes) {
    // One page more than needed, so that the first huge page can begin at a multiple of its size.
    mapped_ =
        ::mmap(nullptr, size_ + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(mapped_ != MAP_FAILED, "cannot have {} bytes of memory for weights: {}", size_, std::strerror(errno));
    begin_ = reinterpret_cast<char*>(rounded_up(reinterpret_cast<uintptr_t>(mapped_), kHugePage));
    // Without huge pages the copy is merely slower.
    ::madvise(begin_, size_, MADV_HUGEPAGE);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { ::munmap(mapped_, size_ + kHugePage); }

  char* data() const { return begin_; }
  size_t size() const { return size_; }

 private:
  size_t size_;
  void* mapped_;
  char* begin_;
};

ResidentMemory::ResidentMemory() = default;
ResidentMemory::~ResidentMemory() = default;

at::Tensor ResidentMemory::copy(const at::Tensor& tensor, at::ScalarType dtype) {
  require(tensor.is_cpu(), "resident memory is for tensors of the CPU");
  const size_t taken = rounded_up(static_cast<size_t>(tensor.numel()) * c10::elementSize(dtype), kAlignment);
  if (!region_ || used_ + taken > region_->size()) {
    region_ = std::make_shared<Region>(rounded_up(std::max(taken, kRegionBytes), kHugePage));
    used_ = 0;
  }
  at::Tensor copied = at::from_blob(
      region_->data() + used_, tensor.sizes(), [keep = region_](void*) {}, dtype);
  copied.copy_(tensor);
  used_ += taken;
  return copied;
}

}  // namespace focus
