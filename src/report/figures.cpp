#include "report/figures.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/error.h"
#include "base/json_reader.h"

namespace focus {

namespace {

using nlohmann::json;

struct Path {
  std::vector<std::pair<std::string, std::string>> filter;
  std::vector<std::string> members;
  std::string reduction;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = text.find(separator); end != std::string::npos; end = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// Returns what is wrong with it.
std::string parse(const std::string& text, Path& path) {
  std::string rest = text;
  if (!rest.empty() && rest.front() == '[') {
    const size_t end = rest.find(']');
    if (end == std::string::npos) return "expected ]";
    for (const std::string& part : split(rest.substr(1, end - 1), ',')) {
      const size_t equal = part.find('=');
      if (equal == std::string::npos || equal == 0) return "expected [key=value,...]";
      path.filter.emplace_back(part.substr(0, equal), part.substr(equal + 1));
    }
    if (end + 1 >= rest.size() || rest[end + 1] != '.') return "expected .MEMBER behind ]";
    rest.erase(0, end + 2);
  }
  const size_t bar = rest.find('|');
  if (bar != std::string::npos) {
    path.reduction = rest.substr(bar + 1);
    const std::vector<std::string> known = {"max", "min", "mean", "last"};
    if (std::find(known.begin(), known.end(), path.reduction) == known.end())
      return "expected |max, |min, |mean or |last";
    rest.erase(bar);
  }
  path.members = split(rest, '.');
  for (const std::string& member : path.members) {
    if (member.empty()) return "expected MEMBER.MEMBER...";
  }
  return "";
}

Path parsed(const std::string& text) {
  Path path;
  const std::string fault = parse(text, path);
  require(fault.empty(), "figure '{}': {}", text, fault);
  return path;
}

bool equals(const json& value, const std::string& text) {
  if (value.is_string()) return value.get<std::string>() == text;
  if (value.is_boolean()) return text == (value.get<bool>() ? "true" : "false");
  if (!value.is_number()) return false;
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && value.get<double>() == number;
}

const json* descend(const json& line, const std::vector<std::string>& members) {
  const json* at = &line;
  for (const std::string& member : members) {
    if (at->is_object()) {
      const auto found = at->find(member);
      if (found == at->end()) return nullptr;
      at = &*found;
      continue;
    }
    size_t index = 0;
    const char* end = member.data() + member.size();
    const auto [stop, error] = std::from_chars(member.data(), end, index);
    if (!at->is_array() || error != std::errc() || stop != end || index >= at->size()) return nullptr;
    at = &(*at)[index];
  }
  return at;
}

const json* find(const std::vector<json>& lines, const Path& path) {
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const bool fits = std::all_of(path.filter.begin(), path.filter.end(), [&](const auto& wanted) {
      return line->is_object() && line->contains(wanted.first) && equals((*line)[wanted.first], wanted.second);
    });
    if (fits) return descend(*line, path.members);
  }
  return nullptr;
}

std::optional<double> number(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (!value.is_number()) return std::nullopt;
  return value.get<double>();
}

std::optional<std::vector<double>> numbers(const json* array) {
  if (array == nullptr || !array->is_array()) return std::nullopt;
  std::vector<double> values;
  for (const json& element : *array) {
    const auto value = number(element);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

}  // namespace

std::string figure_path_fault(const std::string& path) {
  Path unused;
  return parse(path, unused);
}

std::optional<double> read_figure(const std::vector<json>& lines, const std::string& text) {
  const Path path = parsed(text);
  const json* found = find(lines, path);
  if (found == nullptr) return std::nullopt;
  if (path.reduction.empty()) return number(*found);
  const auto values = numbers(found);
  if (!values || values->empty()) return std::nullopt;
  if (path.reduction == "max") return *std::max_element(values->begin(), values->end());
  if (path.reduction == "min") return *std::min_element(values->begin(), values->end());
  if (path.reduction == "last") return values->back();
  return std::accumulate(values->begin(), values->end(), 0.0) / static_cast<double>(values->size());
}

std::optional<std::vector<double>> read_samples(const std::vector<json>& lines, const std::string& text) {
  return numbers(find(lines, parsed(text)));
}

std::optional<std::vector<double>> read_items(const std::vector<json>& lines, const std::string& text) {
  const Path path = parsed(text);
  std::vector<double> values;
  for (const json& line : lines) {
    const json* found = descend(line, path.members);
    const auto value = found != nullptr ? number(*found) : std::nullopt;
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

std::vector<json> parse_json_lines(const std::string& text, const std::string& place) {
  std::vector<json> lines;
  size_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (!line.empty()) lines.push_back(parse_json(line, fmt::format("{}, line {}", place, number)));
  }
  return lines;
}

}  // namespace focus
