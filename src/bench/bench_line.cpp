#include "bench/bench_line.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>

#include "base/build_info.h"
#include "bench/peaks.h"
#include "kernels/cpu/strip_math.h"

namespace focus {

using nlohmann::json;

json bench_line(const std::string& bench, const std::string& method, int64_t length, const Timing& time,
                BenchClock clock, double max_error) {
  const bool foreign = method == "sdpa" || method == "transformers";
  return {{"bench", bench},
          {"method", method},
          {"length", length},
          {"isa", foreign ? at::get_cpu_capability() : kernels::cpu::instruction_set()},
          {"threads", at::get_num_threads()},
          {"clock", clock == BenchClock::kCpu ? "cpu" : "wall"},
          {"ms_median", time.median},
          {"ms_min", time.min},
          {"ms_max", time.max},
          {"max_error", max_error},
          {"commit", build_commit()},
          {"cpu", cpu_name()}};
}

void add_ratios(std::vector<json>& lines, size_t first) {
  const auto pass = [](const json& line) { return line.value("pass", std::string()); };
  for (size_t own = first; own < lines.size(); ++own) {
    json& ratios = lines[own]["ratio_to"] = json::object();
    for (size_t other = first; other < lines.size(); ++other) {
      if (other == own || pass(lines[other]) != pass(lines[own])) continue;
      ratios[lines[other]["method"].get<std::string>()] =
          lines[other]["ms_median"].get<double>() / lines[own]["ms_median"].get<double>();
    }
  }
}

std::string ratio_text(const json& line) {
  std::string text;
  for (const auto& [method, ratio] : line["ratio_to"].items()) {
    text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", method, ratio.get<double>());
  }
  return text;
}

}  // namespace focus
