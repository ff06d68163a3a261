#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace focus::kernels {

/// Testing hook: while set, scratch memory and outputs start as NaN, so that a read of a cell nobody wrote shows up.
void set_poison(bool on);
bool poison();

/// An output tensor with undefined contents (NaN while poison is set).
at::Tensor empty_output(at::IntArrayRef sizes, const at::TensorOptions& options);

/// A thread's working memory: 64-byte aligned float arrays that live until the object dies. Contents are undefined (NaN
/// while poison is set).
class Scratch {
 public:
  float* floats(int64_t count);

 private:
  struct Free {
    void operator()(float* pointer) const;
  };
  std::vector<std::unique_ptr<float, Free>> blocks_;
};

}  // namespace focus::kernels
