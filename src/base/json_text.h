#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace focus {

/// JSON as text, on one line or with `indent` spaces a level. Bytes that are no UTF-8, as names of files may hold, are
/// replaced by U+FFFD: a result must not be lost for its file's name.
inline std::string json_text(const nlohmann::json& value, int indent = -1) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace focus
