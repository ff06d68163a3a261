#include "chat/builtins.h"

#include <utf8proc.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace focus::jinja {

namespace {

constexpr int64_t kLongestRange = 100'000;

/// The characters of a UTF-8 text.
std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> parts;
  for (const char c : text) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
    if (!continues || parts.empty()) parts.emplace_back();
    parts.back() += c;
  }
  return parts;
}

char32_t code_point_of(const std::string& character) {
  size_t at = 0;
  return next_code_point(character, at);
}

/// What Python's str.isspace says.
bool is_space(const std::string& character) {
  const char32_t c = code_point_of(character);
  return is_whitespace(c) || (c >= 0x1C && c <= 0x1F);
}

std::string strip(const std::string& text, const Value& which, bool left, bool right) {
  const std::vector<std::string> parts = characters(to_valid_utf8(text));
  const std::vector<std::string> set =
      which.is_string() ? characters(to_valid_utf8(which.as_string())) : std::vector<std::string>();
  const auto goes = [&](const std::string& character) {
    return which.is_string() ? std::find(set.begin(), set.end(), character) != set.end() : is_space(character);
  };
  auto begin = parts.begin();
  auto end = parts.end();
  if (left) begin = std::find_if_not(begin, end, goes);
  if (right) end = std::find_if_not(std::reverse_iterator(end), std::reverse_iterator(begin), goes).base();
  return std::accumulate(begin, end, std::string());
}

enum class Case { kUpper, kLower };

/// A character in the other case. Of those that become several in upper case only the German sharp s is known.
void append_case(std::string& out, const std::string& character, Case to) {
  const char32_t c = code_point_of(character);
  if (to == Case::kLower) {
    append_lower_case(out, c);
  } else if (c == 0xDF) {
    out += "SS";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

std::string mapped(const std::string& text, Case to) {
  std::string result;
  for (const std::string& character : characters(to_valid_utf8(text))) append_case(result, character, to);
  return result;
}

/// Upper case wherever `starts` says so of the character before ("" at the beginning), else lower case.
template <typename Starts>
std::string with_capitals(const std::string& text, const Starts& starts) {
  std::string result, before;
  for (const std::string& character : characters(to_valid_utf8(text))) {
    append_case(result, character, starts(before) ? Case::kUpper : Case::kLower);
    before = character;
  }
  return result;
}

std::string capitalised(const std::string& text) {
  return with_capitals(text, [](const std::string& before) { return before.empty(); });
}

/// Python's str.title: a word begins after whatever has no case.
std::string titled(const std::string& text) {
  return with_capitals(text, [](const std::string& before) {
    if (before.empty()) return true;
    const auto c = static_cast<utf8proc_int32_t>(code_point_of(before));
    return utf8proc_toupper(c) == c && utf8proc_tolower(c) == c;
  });
}

/// Jinja's filter: a word begins after a space or one of - ( { [ <.
std::string title_filter(const std::string& text) {
  return with_capitals(text, [](const std::string& before) {
    return before.empty() || is_space(before) || std::string_view("-({[<").find(before) != std::string_view::npos;
  });
}

std::string replaced(const std::string& text, const std::string& from, const std::string& to) {
  require(!from.empty(), "replace: the text to replace is empty");
  std::string result;
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string::npos; found = text.find(from, at)) {
    result.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  return result.append(text, at);
}

List split(const std::string& text, const Value& separator, int64_t limit) {
  List parts;
  if (separator.is_undefined() || separator.is_none()) {
    require(limit < 0, "split: a limit needs a separator");
    std::string word;
    for (const std::string& character : characters(to_valid_utf8(text))) {
      if (!is_space(character)) {
        word += character;
      } else if (!word.empty()) {
        parts.emplace_back(std::exchange(word, {}));
      }
    }
    if (!word.empty()) parts.emplace_back(word);
    return parts;
  }
  const std::string& mark = separator.as_string();
  require(!mark.empty(), "split: the separator is empty");
  size_t at = 0;
  for (size_t found = text.find(mark); found != std::string::npos && limit != 0; found = text.find(mark, at), --limit) {
    parts.emplace_back(text.substr(at, found - at));
    at = found + mark.size();
  }
  parts.emplace_back(text.substr(at));
  return parts;
}

bool any_of_texts(const Value& wanted, const std::function<bool(const std::string&)>& matches) {
  if (wanted.is_string()) return matches(wanted.as_string());
  const List& texts = wanted.as_list();
  return std::any_of(texts.begin(), texts.end(), [&](const Value& text) { return matches(text.as_string()); });
}

int64_t length_of(const Value& value) {
  if (value.is_string()) return std::ssize(characters(value.as_string()));
  if (value.is_list()) return std::ssize(value.as_list());
  return std::ssize(value.as_dict().items());
}

Value pairs_of(const Value& value) {
  List pairs;
  for (const auto& [name, item] : value.as_dict().items()) pairs.push_back(List{Value(name), item});
  return pairs;
}

/// selectattr and rejectattr: items whose attribute passes a test, or is true without one.
Value selected(const Value& value, const Arguments& arguments, bool wanted, bool by_attribute) {
  List kept;
  const size_t first = by_attribute ? 1 : 0;
  for (const Value& item : items_of(value)) {
    const Value tested = by_attribute ? item_of(item, arguments.get(0, "", {})) : item;
    bool passes = tested.truthy();
    if (arguments.positional.size() > first) {
      const Arguments rest{
          {arguments.positional.begin() + static_cast<ptrdiff_t>(first) + 1, arguments.positional.end()}, {}};
      passes = apply_test(arguments.positional[first].as_string(), tested, rest);
    }
    if (passes == wanted) kept.push_back(item);
  }
  return kept;
}

Value mapped_items(const Value& value, const Arguments& arguments) {
  List results;
  const Value attribute = arguments.get(SIZE_MAX, "attribute", {});
  for (const Value& item : items_of(value)) {
    if (!attribute.is_undefined()) {
      results.push_back(item_of(item, attribute));
    } else {
      require(!arguments.positional.empty(), "map: a filter or attribute= was expected");
      results.push_back(apply_filter(arguments.positional[0].as_string(), item, {}));
    }
  }
  return results;
}

Value joined(const Value& value, const Arguments& arguments) {
  const std::string separator = arguments.get(0, "d", "").as_string();
  std::string text;
  bool first = true;
  for (const Value& item : items_of(value)) {
    if (!first) text += separator;
    first = false;
    text += item.text();
  }
  return text;
}

Value to_int(const Value& value) {
  if (value.is_number()) return static_cast<int64_t>(value.as_number());
  try {
    return int64_t{std::stoll(value.as_string())};
  } catch (const std::logic_error&) {
    return int64_t{0};
  }
}

std::string current_time(const std::string& format) {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  std::string text(256, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  return text;
}

using Filter = Value (*)(const Value&, const Arguments&);

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> known = {
      {"capitalize", [](const Value& v, const Arguments&) -> Value { return capitalised(v.text()); }},
      {"count", [](const Value& v, const Arguments&) -> Value { return length_of(v); }},
      {"default",
       [](const Value& v, const Arguments& a) -> Value {
         const bool falsy_too = a.get(1, "boolean", false).truthy();
         return v.is_undefined() || (falsy_too && !v.truthy()) ? a.get(0, "default_value", "") : v;
       }},
      {"first", [](const Value& v, const Arguments&) -> Value { return item_of(v, int64_t{0}); }},
      {"int", [](const Value& v, const Arguments&) -> Value { return to_int(v); }},
      {"items", [](const Value& v, const Arguments&) -> Value { return pairs_of(v); }},
      {"join", joined},
      {"last", [](const Value& v, const Arguments&) -> Value { return item_of(v, int64_t{-1}); }},
      {"length", [](const Value& v, const Arguments&) -> Value { return length_of(v); }},
      {"list", [](const Value& v, const Arguments&) -> Value { return items_of(v); }},
      {"lower", [](const Value& v, const Arguments&) -> Value { return mapped(v.text(), Case::kLower); }},
      {"map", mapped_items},
      {"reject", [](const Value& v, const Arguments& a) { return selected(v, a, false, false); }},
      {"rejectattr", [](const Value& v, const Arguments& a) { return selected(v, a, false, true); }},
      {"replace",
       [](const Value& v, const Arguments& a) -> Value {
         return replaced(v.text(), a.get(0, "old", "").as_string(), a.get(1, "new", "").as_string());
       }},
      {"reverse", [](const Value& v, const Arguments&) { return slice_of(v, {}, {}, int64_t{-1}); }},
      {"safe", [](const Value& v, const Arguments&) { return v; }},
      {"select", [](const Value& v, const Arguments& a) { return selected(v, a, true, false); }},
      {"selectattr", [](const Value& v, const Arguments& a) { return selected(v, a, true, true); }},
      {"string", [](const Value& v, const Arguments&) -> Value { return v.text(); }},
      {"title", [](const Value& v, const Arguments&) -> Value { return title_filter(v.text()); }},
      {"tojson",
       [](const Value& v, const Arguments& a) -> Value {
         const Value indent = a.get(SIZE_MAX, "indent", a.get(0, "", None{}));
         return v.to_json(indent.is_none() ? -1 : indent.as_int());
       }},
      {"trim",
       [](const Value& v, const Arguments& a) -> Value { return strip(v.text(), a.get(0, "chars", {}), true, true); }},
      {"upper", [](const Value& v, const Arguments&) -> Value { return mapped(v.text(), Case::kUpper); }},
  };
  return known;
}

template <typename Map>
std::string names_of(const Map& known) {
  std::string names;
  for (const auto& [name, function] : known) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

Value Arguments::get(size_t index, const std::string& name, Value fallback) const {
  if (index < positional.size()) return positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return value;
  }
  return fallback;
}

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = filters().find(name == "d" ? "default" : name);
  require(found != filters().end(), "the filter '{}' is not supported (known: {})", name, names_of(filters()));
  return found->second(value, arguments);
}

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.is_string();
  if (name == "mapping") return value.is_dict();
  if (name == "iterable" || name == "sequence") return value.is_list() || value.is_dict() || value.is_string();
  if (name == "number") return value.is_number();
  if (name == "integer") return value.is_int();
  if (name == "boolean") return value.is_bool();
  if (name == "true") return value.is_bool() && value.truthy();
  if (name == "false") return value.is_bool() && !value.truthy();
  if (name == "odd") return value.as_int() % 2 != 0;
  if (name == "even") return value.as_int() % 2 == 0;
  const Value other = arguments.get(0, "", {});
  if (name == "equalto" || name == "eq") return value == other;
  if (name == "ne") return !(value == other);
  if (name == "in") return contains(other, value);
  if (name == "divisibleby") {
    require(other.as_int() != 0, "divisibleby: division by 0");
    return value.as_int() % other.as_int() == 0;
  }
  fail("the test 'is {}' is not supported", name);
}

Value call_method(const Value& value, const std::string& name, const Arguments& arguments) {
  const Value first = arguments.get(0, "", {});
  if (value.is_string()) {
    const std::string& text = value.as_string();
    if (name == "strip") return strip(text, first, true, true);
    if (name == "lstrip") return strip(text, first, true, false);
    if (name == "rstrip") return strip(text, first, false, true);
    if (name == "upper") return mapped(text, Case::kUpper);
    if (name == "lower") return mapped(text, Case::kLower);
    if (name == "capitalize") return capitalised(text);
    if (name == "title") return titled(text);
    if (name == "split") return split(text, first, arguments.get(1, "maxsplit", int64_t{-1}).as_int());
    if (name == "replace") return replaced(text, first.as_string(), arguments.get(1, "", "").as_string());
    if (name == "startswith") return any_of_texts(first, [&](const std::string& t) { return text.starts_with(t); });
    if (name == "endswith") return any_of_texts(first, [&](const std::string& t) { return text.ends_with(t); });
    if (name == "join") return joined(first, {{value}, {}});
    if (name == "find" || name == "count") {
      size_t count = 0;
      const std::string& part = first.as_string();
      const size_t at = text.find(part);
      if (name == "find") return at == std::string::npos ? int64_t{-1} : length_of(text.substr(0, at));
      require(!part.empty(), "count: the text to count is empty");
      for (size_t i = at; i != std::string::npos; i = text.find(part, i + part.size())) ++count;
      return static_cast<int64_t>(count);
    }
  }
  if (value.is_dict()) {
    if (name == "items") return pairs_of(value);
    if (name == "keys") return items_of(value);
    if (name == "values") {
      List values;
      for (const auto& [key, item] : value.as_dict().items()) values.push_back(item);
      return values;
    }
    if (name == "get") {
      const Value* found = value.as_dict().find(first.as_string());
      return found != nullptr ? *found : arguments.get(1, "default", None{});
    }
  }
  fail("the method '{}' of {} is not supported", name, value.type_name());
}

bool is_function(const std::string& name) {
  return name == "raise_exception" || name == "namespace" || name == "dict" || name == "range" ||
         name == "strftime_now";
}

Value call_function(const std::string& name, const Arguments& arguments) {
  if (name == "raise_exception") fail("the template refuses: {}", arguments.get(0, "message", "").text());
  if (name == "strftime_now") return current_time(arguments.get(0, "format", "").as_string());
  if (name == "namespace" || name == "dict") {
    Dict dict;
    for (const auto& [key, value] : arguments.named) dict.set(key, value);
    return dict;
  }
  require(name == "range", "the function '{}' is not supported", name);
  const bool one = arguments.positional.size() == 1;
  const int64_t begin = one ? 0 : arguments.get(0, "", {}).as_int();
  const int64_t end = arguments.get(one ? 0 : 1, "", {}).as_int();
  const int64_t step = arguments.get(2, "", int64_t{1}).as_int();
  require(step != 0, "range: the step is 0");
  List numbers;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    numbers.emplace_back(i);
    require(std::ssize(numbers) <= kLongestRange, "range: more than {} numbers", kLongestRange);
  }
  return numbers;
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
  return container.is_string() ? joined(part, {}) : Value(part);
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
