#include "eval/tasks/reading.h"

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"

namespace focus {

namespace fs = std::filesystem;

fs::path benchmark_file(const fs::path& folder, std::initializer_list<const char*> names) {
  std::string tried;
  for (const char* name : names) {
    for (const char* ending : {"", ".gz"}) {
      fs::path file = folder / (std::string(name) + ending);
      if (fs::is_regular_file(file)) return file;
    }
    tried += (tried.empty() ? "" : " or ") + std::string(name);
  }
  fail("{}: expected a file {} (or .gz) in it", folder.string(), tried);
}

Record::Record(std::string place, nlohmann::ordered_json value) : place_(std::move(place)), value_(std::move(value)) {
  if (!value_.is_object()) refuse("expected a JSON object");
}

void Record::refuse(const std::string& what) const {
  fail("{}: {}", place_, what);
}

const nlohmann::ordered_json& Record::at(const char* field, const char* kind) const {
  const auto found = value_.find(field);
  if (found == value_.end()) refuse(fmt::format("expected a field \"{}\" ({})", field, kind));
  return *found;
}

std::string Record::text(const char* field) const {
  const nlohmann::ordered_json& found = at(field, "text");
  if (!found.is_string()) refuse(fmt::format("\"{}\" is {}, expected text", field, json_excerpt(found)));
  return found.get<std::string>();
}

std::vector<std::string> Record::texts(const char* field) const {
  const nlohmann::ordered_json& found = at(field, "a list of texts");
  std::vector<std::string> all;
  if (found.is_array()) {
    for (const auto& element : found) {
      if (element.is_string()) all.push_back(element.get<std::string>());
    }
  }
  if (all.empty() || all.size() != found.size()) refuse(fmt::format("\"{}\": expected a list of texts", field));
  return all;
}

int64_t Record::integer(const char* field) const {
  const nlohmann::ordered_json& found = at(field, "an integer");
  if (found.is_number_integer()) return found.get<int64_t>();
  if (found.is_string()) {
    const std::string text = found.get<std::string>();
    if (!text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos) {
      return std::stoll(text);
    }
  }
  refuse(fmt::format("\"{}\" is {}, expected an integer", field, json_excerpt(found)));
}

Record Record::object(const char* field) const {
  const nlohmann::ordered_json& found = at(field, "an object");
  if (!found.is_object()) refuse(fmt::format("\"{}\": expected an object", field));
  return {place_, found};
}

int64_t Record::index(int64_t index, size_t count) const {
  if (index < 0 || index >= static_cast<int64_t>(count)) {
    refuse(fmt::format("the answer is number {} (from 0) of {} choices", index, count));
  }
  return index;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void for_each_record(const fs::path& file, const std::function<void(const Record&)>& visit) {
  const std::string text = read_text_or_gzip(file);
  int64_t number = 0;
  for (const std::string_view line : split_lines(text)) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}: line {}", file.string(), number);
    visit(Record(place, parse_json<nlohmann::ordered_json>(line, place)));
  }
}

}  // namespace focus
