#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "inspect/inspection.h"
#include "inspect/token_class.h"

namespace focus {

/// Bounds within which a list counts as balanced, in multiples of the mean share 1 / K.
inline constexpr double kLowShare = 0.4;
inline constexpr double kHighShare = 3.0;

/// The figures of `focus inspect --json` (docs/formats.md) of one adapter, named `name`; all strings valid UTF-8.
nlohmann::json run_report(const std::string& name, const Inspection& inspection, const InspectedText& text,
                          TokenTexts& texts, const InspectionOptions& options);

/// Agreement of two adapters over the same text: [{layer, agreement}] of the layers that both route, mean over sets of
/// the same number.
nlohmann::json compare_runs(const Inspection& a, const Inspection& b);

/// The text view's data of one adapter for the page (report.js): tokens, and by layer arrays of bytes in base64. Layers
/// are thinned out evenly until the arrays take at most `budget` bytes.
nlohmann::json excerpt_data(const Inspection& inspection, const InspectedText& text, TokenTexts& texts,
                            const InspectionOptions& options, int64_t budget);

/// The terminal's summary of a whole report {model, data, tokens, ..., runs}.
std::string report_summary(const nlohmann::json& report);

}  // namespace focus
