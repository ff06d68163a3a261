#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// Where one tensor of a safetensors file lies. `begin` and `end` are byte offsets from the first byte after the
/// header.
struct SafetensorsEntry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        ///< By offset: they tile the data without hole or overlap.
  std::map<std::string, std::string> metadata;  ///< The "__metadata__" object.
  uint64_t data_start = 0;                      ///< Byte of the file at which the data begins.
};

/// Longest header that is accepted, as in the safetensors library.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Parses and checks a whole file image: 8 bytes little-endian header length, JSON header, data. Checked are every
/// length, dtype, shape and offset, duplicate names, and that the tensors tile the data exactly. Throws Error,
/// beginning with `file`, with byte counts.
SafetensorsHeader parse_safetensors_header(std::string_view image, const std::string& file);

}  // namespace focus
