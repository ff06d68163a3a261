#include "models/config_fields.h"

#include <cmath>

#include "base/error.h"
#include "base/json_reader.h"

namespace focus {

using nlohmann::json;

const json* ConfigFields::find(const std::string& name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const json& ConfigFields::get(const std::string& name) const {
  const json* value = find(name);
  require(value != nullptr, "{}: the field '{}' is missing", file_, name);
  return *value;
}

bool ConfigFields::has(const std::string& name) const {
  return find(name) != nullptr;
}

bool ConfigFields::is_false(const std::string& name) const {
  const json* value = find(name);
  return value != nullptr && value->is_boolean() && !value->get<bool>();
}

int64_t ConfigFields::size(const std::string& name) const {
  const json& value = get(name);
  require(value.is_number_integer() && value >= 1 && value < (int64_t{1} << 31),
          "{}: {} is {}, expected a positive integer", file_, name, json_excerpt(value));
  return value.get<int64_t>();
}

int64_t ConfigFields::size(const std::string& name, int64_t fallback) const {
  return has(name) ? size(name) : fallback;
}

int64_t ConfigFields::count(const std::string& name, int64_t fallback) const {
  if (!has(name)) return fallback;
  const json& value = get(name);
  require(value.is_number_integer() && value >= 0 && value < (int64_t{1} << 31),
          "{}: {} is {}, expected an integer of at least 0", file_, name, json_excerpt(value));
  return value.get<int64_t>();
}

double ConfigFields::number(const std::string& name) const {
  const json& value = get(name);
  require(value.is_number() && std::isfinite(value.get<double>()), "{}: {} is {}, expected a number", file_, name,
          json_excerpt(value));
  return value.get<double>();
}

double ConfigFields::number(const std::string& name, double fallback) const {
  return has(name) ? number(name) : fallback;
}

bool ConfigFields::flag(const std::string& name, bool fallback) const {
  if (!has(name)) return fallback;
  const json& value = get(name);
  require(value.is_boolean(), "{}: {} is {}, expected true or false", file_, name, json_excerpt(value));
  return value.get<bool>();
}

std::string ConfigFields::text(const std::string& name, const std::string& fallback) const {
  if (!has(name)) return fallback;
  const json& value = get(name);
  require(value.is_string(), "{}: {} is {}, expected a text", file_, name, json_excerpt(value));
  return value.get<std::string>();
}

std::vector<std::string> ConfigFields::texts(const std::string& name) const {
  if (!has(name)) return {};
  const json& value = get(name);
  std::vector<std::string> texts;
  require(value.is_array(), "{}: {} is {}, expected a list of texts", file_, name, json_excerpt(value));
  for (const json& text : value) {
    require(text.is_string(), "{}: {} is {}, expected a list of texts", file_, name, json_excerpt(value));
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::vector<int64_t> ConfigFields::token_ids(const std::string& name) const {
  if (!has(name)) return {};
  const json& value = get(name);
  std::vector<int64_t> ids;
  for (const json& id : value.is_array() ? value : json::array({value})) {
    require(id.is_number_integer(), "{}: {} is {}, expected a token id or a list of them", file_, name,
            json_excerpt(value));
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

const json& ConfigFields::object(const std::string& name) const {
  static const json kEmpty = json::object();
  if (!has(name)) return kEmpty;
  const json& value = get(name);
  require(value.is_object(), "{}: {} is not an object", file_, name);
  return value;
}

}  // namespace focus
