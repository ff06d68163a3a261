#pragma once

#include <string>
#include <utility>
#include <vector>

#include "chat/value.h"

namespace focus::jinja {

/// Arguments of a filter, test, method or function.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// The argument at `index`, or of this name, or the fallback.
  Value get(size_t index, const std::string& name, Value fallback) const;
};

/// `value | name(arguments)`, `value is name(arguments)`, `value.name(arguments)` and `name(arguments)`. Each throws
/// Error naming what is not supported, and for `raise_exception` its message.
Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);
Value call_method(const Value& value, const std::string& name, const Arguments& arguments);
Value call_function(const std::string& name, const Arguments& arguments);
/// Whether call_function knows this name.
bool is_function(const std::string& name);

/// Python's `container[key]` for ints (negative ones count from the end) and texts; undefined where there is none.
Value item_of(const Value& container, const Value& key);
/// Python's `container[first:last:step]`; undefined parts take their defaults.
Value slice_of(const Value& container, const Value& first, const Value& last, const Value& step);
/// Python's `value in container`.
bool contains(const Value& container, const Value& value);
/// What a loop goes over: a list's items, a dict's keys, a text's characters. Throws Error for others.
List items_of(const Value& value);

}  // namespace focus::jinja
