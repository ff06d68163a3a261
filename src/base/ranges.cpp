#include "base/ranges.h"

#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"

namespace focus {

namespace {

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool ok = error == std::errc() && end == text.data() + text.size() && value >= 0;
  return ok ? std::optional(value) : std::nullopt;
}

}  // namespace

std::vector<int64_t> parse_ranges(const std::string& flag, const std::string& text, int64_t count) {
  std::set<int64_t> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t dash = part.find('-');
    const std::optional<int64_t> first = whole_number(std::string_view(part).substr(0, dash));
    const std::optional<int64_t> last =
        dash == std::string::npos ? first : whole_number(std::string_view(part).substr(dash + 1));
    if (!first || !last) fail_usage("--{} {}: '{}' is neither a number nor a range such as 4-27", flag, text, part);
    if (*first > *last) fail_usage("--{} {}: the range {} runs backwards", flag, text, part);
    if (*last >= count) fail_usage("--{} {}: {} is out of bounds, the last is {}", flag, text, *last, count - 1);
    for (int64_t i = *first; i <= *last; ++i) numbers.insert(i);
    begin = end + 1;
  }
  return {numbers.begin(), numbers.end()};
}

}  // namespace focus
