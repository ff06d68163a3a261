#pragma once

#include <span>
#include <string>

namespace focus {

struct MeanError {
  double mean = 0;
  double error = 0;  ///< Standard error of the mean: sample deviation / sqrt(n). NaN for fewer than two values.
};

/// " +- 0.0123" for people; nothing where there is no error (NaN).
std::string error_text(double error);

MeanError mean_error(std::span<const double> values);

/// Sum of a over sum of b, and the standard error of that ratio over its pairs (linearised; n / (n - 1)).
MeanError ratio_error(std::span<const double> a, std::span<const double> b);

}  // namespace focus
