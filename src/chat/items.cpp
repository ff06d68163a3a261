#include "chat/items.h"

#include <algorithm>

#include "base/error.h"
#include "chat/text_methods.h"

namespace focus::jinja {

Value attribute_of(Value value, const Value& attribute) {
  if (!attribute.is_string()) return item_of(value, attribute);
  const std::string& path = attribute.as_string();
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, end - at);
    const bool index = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    value = item_of(value, index ? Value(int64_t{std::stoll(part)}) : Value(part));
    at = end + 1;
  }
  return value;
}

Value item_of(const Value& container, const Value& key) {
  if (container.is_dict()) {
    const Value* found = key.is_string() ? container.as_dict().find(key.as_string()) : nullptr;
    return found != nullptr ? *found : Value();
  }
  require(!container.is_undefined(), "'{}' of something undefined was asked for", key.text());
  if (!key.is_int() || !(container.is_list() || container.is_string())) return {};
  const List list = container.is_list() ? container.as_list() : items_of(container);
  const int64_t at = key.as_int() < 0 ? key.as_int() + std::ssize(list) : key.as_int();
  return at >= 0 && at < std::ssize(list) ? list[static_cast<size_t>(at)] : Value();
}

Value slice_of(const Value& container, const Value& first, const Value& last, const Value& step) {
  const List list = container.is_string() ? items_of(container) : container.as_list();
  const int64_t size = std::ssize(list);
  const auto absent = [](const Value& v) { return v.is_undefined() || v.is_none(); };
  const int64_t by = absent(step) ? 1 : step.as_int();
  require(by != 0, "a slice's step is 0");
  const auto bound = [&](const Value& v, int64_t fallback) {
    if (absent(v)) return fallback;
    const int64_t at = v.as_int() < 0 ? v.as_int() + size : v.as_int();
    return std::clamp<int64_t>(at, by > 0 ? 0 : -1, by > 0 ? size : size - 1);
  };
  List part;
  const int64_t end = bound(last, by > 0 ? size : -1);
  for (int64_t i = bound(first, by > 0 ? 0 : size - 1); by > 0 ? i < end : i > end; i += by) {
    part.push_back(list[static_cast<size_t>(i)]);
  }
  if (!container.is_string()) return part;
  std::string text;
  for (const Value& character : part) text += character.as_string();
  return text;
}

bool contains(const Value& container, const Value& value) {
  if (container.is_string()) return container.as_string().find(value.as_string()) != std::string::npos;
  if (container.is_dict()) return value.is_string() && container.as_dict().find(value.as_string()) != nullptr;
  const List& list = container.as_list();
  return std::find(list.begin(), list.end(), value) != list.end();
}

List items_of(const Value& value) {
  if (value.is_list()) return value.as_list();
  List items;
  if (value.is_dict()) {
    for (const auto& [name, item] : value.as_dict().items()) items.emplace_back(name);
  } else {
    require(value.is_string(), "{} cannot be looped over", value.type_name());
    for (std::string& character : characters(value.as_string())) items.emplace_back(std::move(character));
  }
  return items;
}

}  // namespace focus::jinja
