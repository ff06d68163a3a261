#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace focus {

/// What is wrong with a path as read_figure takes it; "" when nothing is.
std::string figure_path_fault(const std::string& path);

/// A figure in the JSON lines that a command printed: "a.b.2" names members and elements, "|max", "|min", "|mean" or
/// "|last" behind it reduces an array. It is read from the last line, or with "[key=value,...]" in front from the last
/// line with these values. nullopt when it is not there or no number (true is 1, false 0). Throws Error for a path with
/// a fault.
std::optional<double> read_figure(const std::vector<nlohmann::json>& lines, const std::string& path);

/// The same for an array of numbers; nullopt when it is not there or holds anything else.
std::optional<std::vector<double>> read_samples(const std::vector<nlohmann::json>& lines, const std::string& path);

/// The member `path` of every line. nullopt when a line lacks it.
std::optional<std::vector<double>> read_items(const std::vector<nlohmann::json>& lines, const std::string& path);

/// JSON lines; empty ones are skipped. Throws Error naming `place`, the line and what was expected there.
std::vector<nlohmann::json> parse_json_lines(const std::string& text, const std::string& place);

}  // namespace focus
