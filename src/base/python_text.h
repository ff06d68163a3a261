#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace focus {

// Text operations as Python defines them on str, which the benchmarks' prompts and formulas and the templates of chats
// were written in. All on UTF-8.

/// Length in characters (code points).
int64_t character_count(std::string_view text);

/// Without white space at the end, at both ends (str.rstrip, str.strip).
std::string_view strip_right(std::string_view text);
std::string_view strip(std::string_view text);

/// First character in title case, all others in lower case (str.capitalize). Of characters whose other case is several
/// the German sharp s and the dotted capital I are known; a capital sigma at the end of a word is not made a final one.
std::string capitalize(std::string_view text);

/// Parts that white space separates, as len(re.split(r"\s+", text)) counts them: an empty part before or after counts.
int64_t count_split_parts(std::string_view text);

/// Every occurrence from left to right (str.replace).
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

/// Whether a character is white space (str.isspace).
bool is_space(char32_t c);

}  // namespace focus
