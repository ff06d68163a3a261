#pragma once

#include <string_view>

namespace focus {

/// The page: its frame, its style and its scripts one after another (folder page/), embedded by CMake.
extern const std::string_view kReportHtml;
extern const std::string_view kReportCss;
extern const std::string_view kReportJs;

}  // namespace focus
