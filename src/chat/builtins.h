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

}  // namespace focus::jinja
