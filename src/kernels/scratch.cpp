#include "kernels/scratch.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

namespace focus::kernels {

namespace {

constexpr std::align_val_t kAlignment{64};
std::atomic<bool> poisoned{false};

}  // namespace

void set_poison(bool on) {
  poisoned = on;
}

bool poison() {
  return poisoned;
}

at::Tensor empty_output(at::IntArrayRef sizes, const at::TensorOptions& options) {
  at::Tensor tensor = at::empty(sizes, options);
  if (poison()) tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  return tensor;
}

void Scratch::Free::operator()(float* pointer) const {
  ::operator delete(pointer, kAlignment);
}

float* Scratch::floats(int64_t count) {
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(float);
  blocks_.emplace_back(static_cast<float*>(::operator new(bytes, kAlignment)));
  float* block = blocks_.back().get();
  if (poison()) std::fill_n(block, count, std::numeric_limits<float>::quiet_NaN());
  return block;
}

}  // namespace focus::kernels
