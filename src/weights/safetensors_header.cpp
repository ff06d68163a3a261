#include "weights/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/json_reader.h"
#include "weights/dtype.h"

namespace focus {

namespace {

using nlohmann::json;

uint64_t read_little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[static_cast<size_t>(i)]);
  return value;
}

json parse_json(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> keys;
  const auto callback = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      require(keys.back().insert(key).second, "{}: the name '{}' appears twice in the header", file, key);
    }
    return true;
  };
  check_json_depth(text, file + ": header");
  try {
    return json::parse(text.begin(), text.end(), callback);
  } catch (const json::exception& e) {
    fail("{}: the header of {} bytes is not valid JSON {}", file, text.size(), json_error_text(e, text));
  }
}

uint64_t unsigned_field(const json& value, const std::string& file, const std::string& name, const char* what) {
  require(value.is_number_unsigned(), "{}: tensor '{}': {} is not a non-negative integer", file, name, what);
  return value.get<uint64_t>();
}

SafetensorsEntry parse_entry(const std::string& name, const json& value, const std::string& file) {
  require(value.is_object(), "{}: tensor '{}': its header entry is not an object", file, name);
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    require(value.contains(key), "{}: tensor '{}' has no {}", file, name, key);
  }
  SafetensorsEntry entry;
  entry.name = name;

  const json& dtype = value["dtype"];
  require(dtype.is_string(), "{}: tensor '{}': dtype is not a string", file, name);
  const std::string& dtype_text = dtype.get_ref<const std::string&>();
  const std::optional<at::ScalarType> scalar_type = dtype_of_safetensors_name(dtype_text);
  require(scalar_type.has_value(), "{}: tensor '{}' has the unknown dtype '{}' (known: {})", file, name, dtype_text,
          supported_safetensors_dtypes());
  entry.dtype = *scalar_type;

  const json& shape = value["shape"];
  require(shape.is_array(), "{}: tensor '{}': shape is not a list", file, name);
  uint64_t bytes = c10::elementSize(entry.dtype);
  for (const json& dimension : shape) {
    const uint64_t size = unsigned_field(dimension, file, name, "a dimension of its shape");
    constexpr uint64_t kLimit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    require(size <= kLimit && (size == 0 || bytes <= kLimit / size),
            "{}: tensor '{}': the size of its shape overflows 64 bits", file, name);
    bytes *= size;
    entry.shape.push_back(static_cast<int64_t>(size));
  }

  const json& offsets = value["data_offsets"];
  require(offsets.is_array() && offsets.size() == 2, "{}: tensor '{}': data_offsets is not a list of two numbers", file,
          name);
  entry.begin = unsigned_field(offsets[0], file, name, "a data offset");
  entry.end = unsigned_field(offsets[1], file, name, "a data offset");
  require(entry.begin <= entry.end, "{}: tensor '{}': its data offsets are reversed ({} > {})", file, name, entry.begin,
          entry.end);
  require(entry.end - entry.begin == bytes, "{}: tensor '{}': shape and dtype take {} bytes, its offsets hold {}", file,
          name, bytes, entry.end - entry.begin);
  return entry;
}

void check_tiling(const std::vector<SafetensorsEntry>& entries, uint64_t data_size, const std::string& file) {
  uint64_t expected = 0;
  for (const SafetensorsEntry& entry : entries) {
    require(entry.end <= data_size,
            "{}: tensor '{}' ends at byte {} of the data, but the file holds only {} bytes of it", file, entry.name,
            entry.end, data_size);
    require(entry.begin >= expected,
            "{}: tensor '{}' begins at byte {} of the data and overlaps the one before, which ends at {}", file,
            entry.name, entry.begin, expected);
    require(entry.begin == expected, "{}: {} unused bytes before tensor '{}' at byte {} of the data", file,
            entry.begin - expected, entry.name, entry.begin);
    expected = entry.end;
  }
  require(expected == data_size, "{}: {} bytes after the last tensor (the tensors take {} of {} bytes of data)", file,
          data_size - expected, expected, data_size);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view image, const std::string& file) {
  require(image.size() >= 8, "{}: not a safetensors file: {} bytes, at least 8 expected", file, image.size());
  const uint64_t length = read_little_endian(image);
  require(length <= kMaxSafetensorsHeader, "{}: the header claims {} bytes, more than the limit of {}", file, length,
          kMaxSafetensorsHeader);
  require(length <= image.size() - 8, "{}: truncated: the header claims {} bytes, but the file has {} in all", file,
          length, image.size());
  const std::string_view text = image.substr(8, length);
  require(!text.empty() && text.front() == '{', "{}: the header of {} bytes does not begin with '{{'", file, length);

  const json root = parse_json(text, file);
  SafetensorsHeader header;
  header.data_start = 8 + length;
  for (const auto& [name, value] : root.items()) {
    if (name != "__metadata__") {
      header.entries.push_back(parse_entry(name, value, file));
      continue;
    }
    require(value.is_object(), "{}: __metadata__ is not an object", file);
    for (const auto& [key, text_value] : value.items()) {
      require(text_value.is_string(), "{}: __metadata__ '{}' is not a string", file, key);
      header.metadata[key] = text_value.get<std::string>();
    }
  }
  std::sort(header.entries.begin(), header.entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_tiling(header.entries, image.size() - header.data_start, file);
  return header;
}

}  // namespace focus
