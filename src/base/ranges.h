#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace focus {

/// Numbers and ranges such as "4-27" or "0,2,5-9" as ascending numbers below `count`, each once. Throws UsageError,
/// beginning with --`flag`, naming what is no number or range, a range that runs backwards, or a number out of bounds.
std::vector<int64_t> parse_ranges(const std::string& flag, const std::string& text, int64_t count);

}  // namespace focus
