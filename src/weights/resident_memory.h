#pragma once

#include <ATen/ATen.h>

#include <memory>

namespace focus {

/// Memory for copies of weights that are read over and over, as by generation: packed in the order they come, in large
/// pages where the system grants them (madvise, MADV_HUGEPAGE), which are read about half as fast again as the small
/// pages of a mapped file. A copy keeps its memory alive.
class ResidentMemory {
 public:
  ResidentMemory();
  ~ResidentMemory();
  ResidentMemory(const ResidentMemory&) = delete;
  ResidentMemory& operator=(const ResidentMemory&) = delete;

  /// A contiguous copy of a CPU tensor in the given dtype. Throws Error when there is no memory.
  at::Tensor copy(const at::Tensor& tensor, at::ScalarType dtype);

 private:
  class Region;
  std::shared_ptr<Region> region_;
  size_t used_ = 0;
};

}  // namespace focus
