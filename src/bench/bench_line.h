#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/timing.h"

namespace focus {

/// The keys that the lines of all benchmarks have: bench, method, length, isa, threads, clock, ms_median, ms_min,
/// ms_max, max_error, commit, cpu.
nlohmann::json bench_line(const std::string& bench, const std::string& method, int64_t length, const Timing& time,
                          BenchClock clock, double max_error);

/// Sets ratio_to, how many times faster than each of the others, in the lines from `first` on, which are of one length;
/// lines of different passes ("pass") are not compared.
void add_ratios(std::vector<nlohmann::json>& lines, size_t first);

/// ratio_to for people: "full 2.00, sdpa 1.50".
std::string ratio_text(const nlohmann::json& line);

}  // namespace focus
