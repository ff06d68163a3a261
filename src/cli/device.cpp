#include "cli/device.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <charconv>

#include "base/error.h"

namespace focus {

namespace {

/// Dlopen looks in the RPATH of this program, where the wheel's libraries are.
void load_cuda() {
  static void* handle = nullptr;
  if (handle != nullptr) return;
  handle = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) fail("--device cuda: the CUDA part of LibTorch cannot be loaded: {}", dlerror());
}

}  // namespace

at::Device open_device(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  int index = 0;
  if (name.rfind("cuda:", 0) == 0) {
    const char* begin = name.data() + 5;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(begin, end, index);
    if (error != std::errc() || stop != end || index < 0 || index > 127) {
      fail_usage("--device {}: expected cpu, cuda or cuda:N", name);
    }
  } else if (name != "cuda") {
    fail_usage("--device {}: expected cpu, cuda or cuda:N", name);
  }
  load_cuda();
  int count = 0;
  if (at::hasCUDA()) count = at::detail::getCUDAHooks().deviceCount();
  if (count == 0) fail("--device {}: no CUDA device can be used on this machine", name);
  if (index >= count) fail("--device {}: this machine has {} CUDA device(s), counted from 0", name, count);
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

std::optional<at::ScalarType> parse_dtype(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  if (*name == "float32") return at::kFloat;
  if (*name == "bfloat16") return at::kBFloat16;
  if (*name == "float16") return at::kHalf;
  fail_usage("--dtype {}: expected float32, bfloat16 or float16", *name);
}

}  // namespace focus
