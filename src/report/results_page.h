#pragma once

#include <string>

#include "report/document.h"

namespace focus {

/// results.html: the document as a page that loads nothing, with tables, claims and plots.
std::string results_page(const ReportDocument& document);

}  // namespace focus
