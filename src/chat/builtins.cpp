#include "chat/builtins.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/python_text.h"
#include "chat/items.h"
#include "chat/text_methods.h"

namespace focus::jinja {

namespace {

constexpr int64_t kLongestRange = 100'000;

/// The parameters of a filter, test, method or function. One without a name is given by place only.
struct Parameters {
  std::vector<const char*> names = {};
  size_t required = 0;
  bool more = false;  ///< Any further ones, for a filter or test that this one calls.
};

/// Refuses arguments that would otherwise go unnoticed. `what` names who takes them, as in "the filter 'trim'".
void check_arguments(const std::string& what, const Arguments& arguments, const Parameters& parameters) {
  if (parameters.more) {
    require(arguments.positional.size() >= parameters.required, "{}: an argument is missing", what);
    return;
  }
  const std::vector<const char*>& names = parameters.names;
  require(arguments.positional.size() <= names.size(), "{}: {} arguments, at most {} are supported", what,
          arguments.positional.size(), names.size());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    require(found != names.end(), "{}: the argument '{}' is not supported", what, name);
    require(found - names.begin() >= std::ssize(arguments.positional), "{}: the argument '{}' is given twice", what,
            name);
  }
  for (size_t i = arguments.positional.size(); i < parameters.required; ++i) {
    const bool given = std::any_of(arguments.named.begin(), arguments.named.end(),
                                   [&](const auto& named) { return named.first == names[i]; });
    require(given, "{}: an argument is missing", what);
  }
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

/// The arguments behind the first `count`.
Arguments rest_of(const Arguments& arguments, size_t count) {
  return {{arguments.positional.begin() + static_cast<ptrdiff_t>(count), arguments.positional.end()}, arguments.named};
}

/// select, reject, selectattr and rejectattr: items that (or whose attribute) pass a test, or are true without one.
Value selected(const Value& value, const Arguments& arguments, bool wanted, bool by_attribute) {
  List kept;
  const size_t first = by_attribute ? 1 : 0;
  const bool has_test = arguments.positional.size() > first;
  require(has_test || arguments.named.empty(), "select: a test was expected before named arguments");
  for (const Value& item : items_of(value)) {
    const Value tested = by_attribute ? attribute_of(item, arguments.positional[0]) : item;
    const bool passes = has_test
                            ? apply_test(arguments.positional[first].as_string(), tested, rest_of(arguments, first + 1))
                            : tested.truthy();
    if (passes == wanted) kept.push_back(item);
  }
  return kept;
}

Value mapped_items(const Value& value, const Arguments& arguments) {
  List results;
  if (arguments.positional.empty()) {
    check_arguments("the filter 'map'", {{Value()}, arguments.named}, {{"", "attribute", "default"}, 2});
    const Value attribute = arguments.get(0, "attribute", {}), fallback = arguments.get(1, "default", {});
    for (const Value& item : items_of(value)) {
      const Value found = attribute_of(item, attribute);
      results.push_back(found.is_undefined() ? fallback : found);
    }
    return results;
  }
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : items_of(value)) {
    results.push_back(apply_filter(arguments.positional[0].as_string(), item, rest));
  }
  return results;
}

Value joined(const Value& value, const Arguments& arguments) {
  const std::string separator = arguments.get(0, "d", "").text();
  const Value attribute = arguments.get(1, "attribute", {});
  std::string text;
  bool first = true;
  for (const Value& item : items_of(value)) {
    if (!first) text += separator;
    first = false;
    text += attribute.is_undefined() ? item.text() : attribute_of(item, attribute).text();
    require(text.size() <= kLongestText, "join: a text longer than {}", kLongestText);
  }
  return text;
}

/// A number of occurrences: all where none is given.
int64_t count_of(const Value& value) {
  return value.is_undefined() || value.is_none() ? -1 : value.as_int();
}

Value to_int(const Value& value, const Value& fallback) {
  if (value.is_number()) return static_cast<int64_t>(value.as_number());
  try {
    return int64_t{std::stoll(value.as_string())};
  } catch (const std::logic_error&) {
    return fallback;
  }
}

Value to_json(const Value& value, const Arguments& arguments) {
  const Value indent = arguments.get(1, "indent", None{});
  require(!arguments.get(0, "ensure_ascii", false).truthy(), "tojson: ensure_ascii is not supported");
  constexpr int64_t kWidest = 100;
  require(indent.is_none() || indent.as_int() <= kWidest, "tojson: an indent of more than {}", kWidest);
  return value.to_json(indent.is_none() ? -1 : indent.as_int());
}

std::string current_time(const std::string& format) {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  std::string text(256, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  return text;
}

struct Filter {
  Parameters parameters;
  Value (*apply)(const Value&, const Arguments&);
};

const std::map<std::string, Filter>& filters() {
  using A = Arguments;
  using V = Value;
  static const std::map<std::string, Filter> known = {
      {"capitalize", {{}, [](const V& v, const A&) -> V { return capitalize(v.text()); }}},
      {"count", {{}, [](const V& v, const A&) -> V { return length_of(v); }}},
      {"default",
       {{{"default_value", "boolean"}},
        [](const V& v, const A& a) -> V {
          const bool falsy_too = a.get(1, "boolean", false).truthy();
          return v.is_undefined() || (falsy_too && !v.truthy()) ? a.get(0, "default_value", "") : v;
        }}},
      {"first", {{}, [](const V& v, const A&) -> V { return item_of(v, int64_t{0}); }}},
      {"int", {{{"default"}}, [](const V& v, const A& a) -> V { return to_int(v, a.get(0, "default", int64_t{0})); }}},
      {"items", {{}, [](const V& v, const A&) -> V { return pairs_of(v); }}},
      {"join", {{{"d", "attribute"}}, joined}},
      {"last", {{}, [](const V& v, const A&) -> V { return item_of(v, int64_t{-1}); }}},
      {"length", {{}, [](const V& v, const A&) -> V { return length_of(v); }}},
      {"list", {{}, [](const V& v, const A&) -> V { return items_of(v); }}},
      {"lower", {{}, [](const V& v, const A&) -> V { return lower_case(v.text()); }}},
      {"map", {{.more = true}, mapped_items}},
      {"reject", {{.more = true}, [](const V& v, const A& a) { return selected(v, a, false, false); }}},
      {"rejectattr",
       {{.required = 1, .more = true}, [](const V& v, const A& a) { return selected(v, a, false, true); }}},
      {"replace",
       {{{"old", "new", "count"}, 2},
        [](const V& v, const A& a) -> V {
          return replaced(v.text(), a.get(0, "old", {}).as_string(), a.get(1, "new", {}).as_string(),
                          count_of(a.get(2, "count", {})));
        }}},
      {"reverse", {{}, [](const V& v, const A&) { return slice_of(v, {}, {}, int64_t{-1}); }}},
      {"safe", {{}, [](const V& v, const A&) { return v; }}},
      {"select", {{.more = true}, [](const V& v, const A& a) { return selected(v, a, true, false); }}},
      {"selectattr",
       {{.required = 1, .more = true}, [](const V& v, const A& a) { return selected(v, a, true, true); }}},
      {"string", {{}, [](const V& v, const A&) -> V { return v.text(); }}},
      {"title", {{}, [](const V& v, const A&) -> V { return title_filter(v.text()); }}},
      {"tojson", {{{"ensure_ascii", "indent"}}, to_json}},
      {"trim",
       {{{"chars"}}, [](const V& v, const A& a) -> V { return strip(v.text(), a.get(0, "chars", {}), true, true); }}},
      {"upper", {{}, [](const V& v, const A&) -> V { return upper_case(v.text()); }}},
  };
  return known;
}

struct TextMethod {
  Parameters parameters;
  Value (*call)(const std::string&, const Arguments&);
};

Value found_at(const std::string& text, const Arguments& arguments) {
  const size_t at = text.find(arguments.positional[0].as_string());
  return at == std::string::npos ? int64_t{-1} : length_of(text.substr(0, at));
}

Value occurrences(const std::string& text, const Arguments& arguments) {
  const std::string& part = arguments.positional[0].as_string();
  require(!part.empty(), "count: the text to count is empty");
  int64_t count = 0;
  for (size_t i = text.find(part); i != std::string::npos; i = text.find(part, i + part.size())) ++count;
  return count;
}

const std::map<std::string, TextMethod>& text_methods() {
  using A = Arguments;
  using S = std::string;
  static const std::map<std::string, TextMethod> known = {
      {"capitalize", {{}, [](const S& s, const A&) -> Value { return capitalize(s); }}},
      {"count", {{{""}, 1}, occurrences}},
      {"endswith",
       {{{""}, 1},
        [](const S& s, const A& a) -> Value {
          return any_of_texts(a.positional[0], [&](const S& end) { return s.ends_with(end); });
        }}},
      {"find", {{{""}, 1}, found_at}},
      {"join",
       {{{""}, 1},
        [](const S& s, const A& a) -> Value {
          return joined(a.positional[0], {{Value(s)}, {}});
        }}},
      {"lower", {{}, [](const S& s, const A&) -> Value { return lower_case(s); }}},
      {"lstrip", {{{""}}, [](const S& s, const A& a) -> Value { return strip(s, a.get(0, "", {}), true, false); }}},
      {"replace",
       {{{"", "", "count"}, 2},
        [](const S& s, const A& a) -> Value {
          return replaced(s, a.positional[0].as_string(), a.positional[1].as_string(), count_of(a.get(2, "count", {})));
        }}},
      {"rstrip", {{{""}}, [](const S& s, const A& a) -> Value { return strip(s, a.get(0, "", {}), false, true); }}},
      {"split",
       {{{"sep", "maxsplit"}},
        [](const S& s, const A& a) -> Value {
          return split(s, a.get(0, "sep", {}), a.get(1, "maxsplit", int64_t{-1}).as_int());
        }}},
      {"startswith",
       {{{""}, 1},
        [](const S& s, const A& a) -> Value {
          return any_of_texts(a.positional[0], [&](const S& begin) { return s.starts_with(begin); });
        }}},
      {"strip", {{{""}}, [](const S& s, const A& a) -> Value { return strip(s, a.get(0, "", {}), true, true); }}},
      {"title", {{}, [](const S& s, const A&) -> Value { return title_method(s); }}},
      {"upper", {{}, [](const S& s, const A&) -> Value { return upper_case(s); }}},
  };
  return known;
}

struct Test {
  Parameters parameters;
  bool (*holds)(const Value&, const Value& other);
};

bool divides(const Value& value, const Value& other) {
  require(other.as_int() != 0, "divisibleby: division by 0");
  return other.as_int() == -1 || value.as_int() % other.as_int() == 0;
}

const std::map<std::string, Test>& tests() {
  using V = Value;
  const auto iterable = [](const V& v, const V&) { return v.is_list() || v.is_dict() || v.is_string(); };
  const auto equal = [](const V& v, const V& other) { return v == other; };
  static const std::map<std::string, Test> known = {
      {"boolean", {{}, [](const V& v, const V&) { return v.is_bool(); }}},
      {"defined", {{}, [](const V& v, const V&) { return !v.is_undefined(); }}},
      {"divisibleby", {{{""}, 1}, divides}},
      {"eq", {{{""}, 1}, equal}},
      {"equalto", {{{""}, 1}, equal}},
      {"even", {{}, [](const V& v, const V&) { return v.as_int() % 2 == 0; }}},
      {"false", {{}, [](const V& v, const V&) { return v.is_bool() && !v.truthy(); }}},
      {"in", {{{""}, 1}, [](const V& v, const V& other) { return contains(other, v); }}},
      {"integer", {{}, [](const V& v, const V&) { return v.is_int(); }}},
      {"iterable", {{}, iterable}},
      {"mapping", {{}, [](const V& v, const V&) { return v.is_dict(); }}},
      {"ne", {{{""}, 1}, [](const V& v, const V& other) { return !(v == other); }}},
      {"none", {{}, [](const V& v, const V&) { return v.is_none(); }}},
      {"number", {{}, [](const V& v, const V&) { return v.is_number(); }}},
      {"odd", {{}, [](const V& v, const V&) { return v.as_int() % 2 != 0; }}},
      {"sequence", {{}, iterable}},
      {"string", {{}, [](const V& v, const V&) { return v.is_string(); }}},
      {"true", {{}, [](const V& v, const V&) { return v.is_bool() && v.truthy(); }}},
      {"undefined", {{}, [](const V& v, const V&) { return v.is_undefined(); }}},
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
  check_arguments(fmt::format("the filter '{}'", name), arguments, found->second.parameters);
  return found->second.apply(value, arguments);
}

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = tests().find(name);
  require(found != tests().end(), "the test 'is {}' is not supported", name);
  check_arguments(fmt::format("the test 'is {}'", name), arguments, found->second.parameters);
  return found->second.holds(value, arguments.get(0, "", {}));
}

Value call_method(const Value& value, const std::string& name, const Arguments& arguments) {
  const auto takes = [&](const Parameters& parameters) {
    check_arguments(fmt::format("the method '{}' of {}", name, value.type_name()), arguments, parameters);
  };
  if (value.is_string()) {
    const auto found = text_methods().find(name);
    if (found != text_methods().end()) {
      takes(found->second.parameters);
      return found->second.call(value.as_string(), arguments);
    }
  }
  if (value.is_dict()) {
    if (name == "get") {
      takes({{"", ""}, 1});
      const Value* found = value.as_dict().find(arguments.positional[0].as_string());
      return found != nullptr ? *found : arguments.get(1, "", None{});
    }
    if (name == "items" || name == "keys" || name == "values") {
      takes({});
      if (name == "items") return pairs_of(value);
      if (name == "keys") return items_of(value);
      List values;
      for (const auto& [key, item] : value.as_dict().items()) values.push_back(item);
      return values;
    }
  }
  fail("the method '{}' of {} is not supported", name, value.type_name());
}

bool is_function(const std::string& name) {
  return name == "raise_exception" || name == "namespace" || name == "dict" || name == "range" ||
         name == "strftime_now";
}

Value call_function(const std::string& name, const Arguments& arguments) {
  const auto takes = [&](const Parameters& parameters) {
    check_arguments(fmt::format("the function '{}'", name), arguments, parameters);
  };
  if (name == "raise_exception") takes({{"message"}, 1});
  if (name == "strftime_now") takes({{"format"}, 1});
  if (name == "range") takes({{"", "", ""}, 1});
  if (name == "raise_exception") fail("the template refuses: {}", arguments.get(0, "message", "").text());
  if (name == "strftime_now") return current_time(arguments.get(0, "format", "").as_string());
  if (name == "namespace" || name == "dict") {
    require(arguments.positional.empty(), "the function '{}': only named arguments are supported", name);
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

}  // namespace focus::jinja
