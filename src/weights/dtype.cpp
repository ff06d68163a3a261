#include "weights/dtype.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace focus {

namespace {

struct DtypeName {
  at::ScalarType dtype;
  std::string_view safetensors;
  std::string_view plain;
};

constexpr std::array<DtypeName, 10> kDtypes = {{{at::kDouble, "F64", "float64"},
                                                {at::kFloat, "F32", "float32"},
                                                {at::kHalf, "F16", "float16"},
                                                {at::kBFloat16, "BF16", "bfloat16"},
                                                {at::kLong, "I64", "int64"},
                                                {at::kInt, "I32", "int32"},
                                                {at::kShort, "I16", "int16"},
                                                {at::kChar, "I8", "int8"},
                                                {at::kByte, "U8", "uint8"},
                                                {at::kBool, "BOOL", "bool"}}};

}  // namespace

std::optional<at::ScalarType> dtype_of_safetensors_name(std::string_view name) {
  for (const DtypeName& entry : kDtypes) {
    if (entry.safetensors == name) return entry.dtype;
  }
  return std::nullopt;
}

std::optional<std::string> safetensors_name_of(at::ScalarType dtype) {
  for (const DtypeName& entry : kDtypes) {
    if (entry.dtype == dtype) return std::string(entry.safetensors);
  }
  return std::nullopt;
}

const std::string& supported_safetensors_dtypes() {
  static const std::string names = [] {
    std::string joined;
    for (const DtypeName& entry : kDtypes) joined += (joined.empty() ? "" : ", ") + std::string(entry.safetensors);
    return joined;
  }();
  return names;
}

std::string dtype_name(at::ScalarType dtype) {
  for (const DtypeName& entry : kDtypes) {
    if (entry.dtype == dtype) return std::string(entry.plain);
  }
  return c10::toString(dtype);
}

at::ScalarType parse_model_dtype(std::string_view name) {
  for (const DtypeName& entry : kDtypes) {
    if (entry.plain == name && at::isFloatingType(entry.dtype)) return entry.dtype;
  }
  fail_usage("dtype '{}' is not known; expected float32, bfloat16, float16 or float64", name);
}

}  // namespace focus
