#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace focus {

/// The page's size that its data is cut down to, in bytes.
inline constexpr int64_t kPageBudget = 3'000'000;

/// A page that needs nothing else: the report, with the text view's data of each run (excerpt_data). Tables of lists
/// are shortened, with a note in the page, where there are too many for the budget. Tokens of any content are safe: the
/// data is JSON in which no markup can begin, and the page's script puts texts into the document as text only.
std::string html_page(const nlohmann::json& report, const std::vector<nlohmann::json>& excerpts);

}  // namespace focus
