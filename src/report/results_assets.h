#pragma once

#include <string_view>

namespace focus {

/// The page's own parts (folder page/), embedded by CMake.
extern const std::string_view kResultsHtml;
extern const std::string_view kResultsCss;
extern const std::string_view kResultsJs;

}  // namespace focus
