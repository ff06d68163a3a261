#pragma once

#include <string_view>

namespace focus {

/// The page's own parts (folder page/), embedded by CMake.
extern const std::string_view kReportHtml;
extern const std::string_view kReportCss;
extern const std::string_view kTextViewJs;
extern const std::string_view kReportJs;

}  // namespace focus
