#include "eval/statistics.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace focus {

std::string error_text(double error) {
  return !std::isfinite(error) ? "" : fmt::format(" +- {:.4f}", error);
}

MeanError mean_error(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  MeanError result{std::accumulate(values.begin(), values.end(), 0.0) / n, std::numeric_limits<double>::quiet_NaN()};
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double x : values) squares += (x - result.mean) * (x - result.mean);
  result.error = std::sqrt(squares / (n * (n - 1)));
  return result;
}

MeanError ratio_error(std::span<const double> a, std::span<const double> b) {
  require(a.size() == b.size(), "a ratio of {} to {} values", a.size(), b.size());
  const double sum_b = std::accumulate(b.begin(), b.end(), 0.0);
  MeanError result{std::accumulate(a.begin(), a.end(), 0.0) / sum_b, std::numeric_limits<double>::quiet_NaN()};
  if (a.size() < 2) return result;
  const auto n = static_cast<double>(a.size());
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - result.mean * b[i]) * (a[i] - result.mean * b[i]);
  result.error = std::sqrt(squares * n / (n - 1)) / sum_b;
  return result;
}

}  // namespace focus
