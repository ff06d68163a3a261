#pragma once

#include <string_view>

namespace focus {

/// What the pages share (folder shared/), embedded by CMake.
extern const std::string_view kPageCss;
extern const std::string_view kChartsJs;   ///< First of the scripts: it sets their mode.
extern const std::string_view kScatterJs;  ///< Needs kChartsJs.
extern const std::string_view kCommonJs;   ///< Needs kChartsJs.

}  // namespace focus
