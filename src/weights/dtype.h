#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>

namespace focus {

/// The scalar type of a safetensors dtype name ("F32", "BF16", "BOOL" ...); nothing for a name that is not supported.
std::optional<at::ScalarType> dtype_of_safetensors_name(std::string_view name);

/// The safetensors name of a scalar type; nothing if the format has none.
std::optional<std::string> safetensors_name_of(at::ScalarType dtype);

/// The dtype names of the file format that are supported, for messages.
const std::string& supported_safetensors_dtypes();

/// "float32", "bfloat16" ... as in config.json and --dtype.
std::string dtype_name(at::ScalarType dtype);

/// The inverse of dtype_name for the dtypes a model can run in (float32, bfloat16, float16, float64). Throws UsageError
/// naming the value and the accepted ones.
at::ScalarType parse_model_dtype(std::string_view name);

}  // namespace focus
