#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// A self-contained page: `html` with its marks /*focus-css*/, /*focus-js*/ and focus-data replaced by the styles, the
/// scripts and the data, each once. The data may hold any text: no markup can begin in it, and scripts put texts into
/// the document as text only. Throws Error for a mark that is not there.
std::string make_page(std::string_view html, const std::vector<std::string_view>& styles,
                      const std::vector<std::string_view>& scripts, const nlohmann::json& data);

/// JSON that may stand inside a script element: every < as \u003c, invalid UTF-8 as U+FFFD.
std::string json_in_html(const nlohmann::json& value);

}  // namespace focus
