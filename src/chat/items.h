#pragma once

#include "chat/value.h"

namespace focus::jinja {

/// Python's `container[key]` for ints (negative ones count from the end) and texts; undefined where there is none.
Value item_of(const Value& container, const Value& key);
/// Python's `container[first:last:step]`; undefined parts take their defaults.
Value slice_of(const Value& container, const Value& first, const Value& last, const Value& step);
/// Python's `value in container`.
bool contains(const Value& container, const Value& value);
/// What a loop goes over: a list's items, a dict's keys, a text's characters. Throws Error for others.
List items_of(const Value& value);
/// Jinja's attribute= of filters: "a.b.0" leads through dicts and lists.
Value attribute_of(Value value, const Value& attribute);

}  // namespace focus::jinja
