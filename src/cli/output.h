#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace focus {

/// Nobody reads standard output any more (`focus ... | head`). Not an Error: run_program ends with exit code 0 and no
/// message.
class BrokenPipe {};

/// Writes results to standard output at once. Throws BrokenPipe when the reader is gone, Error when it cannot be
/// written (full disk).
void write_output(std::string_view text);

/// One line of JSON (invalid UTF-8 becomes U+FFFD; infinities and NaN become null).
void write_json_line(const nlohmann::json& value);

}  // namespace focus
