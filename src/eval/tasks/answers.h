#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// The text before the first of the stop strings.
std::string_view before_stops(std::string_view text, const std::vector<std::string>& stops);

/// The number of the first "The answer is NUMBER." of a text (the last character may be any but a line end), else
/// "[invalid]": the harness's pattern "The answer is (\-?[0-9\.\,]+).".
std::string strict_answer(std::string_view text);

/// The last number of a text, else "[invalid]": the last match of "(-?[$0-9.,]{2,})|(-?[0-9]+)".
std::string flexible_answer(std::string_view text);

/// Equal but for upper case, commas, dollar signs, a full stop at the end and what stands before "#### ".
bool answers_match(std::string_view answer, std::string_view reference);

}  // namespace focus
