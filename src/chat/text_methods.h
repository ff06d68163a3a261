#pragma once

#include <string>
#include <vector>

#include "chat/value.h"

namespace focus::jinja {

// What Python's str methods and Jinja's filters do to texts, for builtins.h.

/// The characters of a UTF-8 text.
std::vector<std::string> characters(const std::string& text);

/// Without the characters of `which` (white space, if that is undefined or None) at either or both ends.
std::string strip(const std::string& text, const Value& which, bool left, bool right);

std::string upper_case(const std::string& text);
std::string lower_case(const std::string& text);
/// Python's str.title: a word begins after whatever has no case.
std::string title_method(const std::string& text);
/// Jinja's filter: a word begins after a space or one of - ( { [ <.
std::string title_filter(const std::string& text);

/// The first `count` occurrences, all if that is negative. Throws Error for an empty `from` and for a result longer
/// than kLongestText.
std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t count);

/// Python's str.split. Throws Error for an empty separator, and for a limit without one.
List split(const std::string& text, const Value& separator, int64_t limit);

}  // namespace focus::jinja
