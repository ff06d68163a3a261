#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>

namespace focus {

/// "cpu", "cuda" or "cuda:N" as a device that can be used. The CUDA half of LibTorch is loaded here, when it is first
/// asked for; this must come before anything else asks ATen about CUDA. Throws UsageError for another name, Error with
/// the reason when there is no such device.
at::Device open_device(const std::string& name);

/// "float32", "bfloat16", "float16"; nullopt stays nullopt. Throws UsageError for another name.
std::optional<at::ScalarType> parse_dtype(const std::optional<std::string>& name);

}  // namespace focus
