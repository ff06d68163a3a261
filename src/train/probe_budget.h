#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace focus {

/// What probing more lists buys the head sets of one layer, measured with hard masks.
struct ProbeCurves {
  at::Tensor error;  ///< float64 [Hg, n]: error of the head set's output with grid[i] probes, summed over its heads.
  at::Tensor kept;   ///< float64 [Hg, n]: share of the far pairs kept.
};

/// Numbers of probes that curves are measured at: ascending from 1 to K, about three to a doubling, P among them.
std::vector<int64_t> probe_grid(int64_t groups_per_token, int64_t groups);

/// Shares the probes out among the head sets of all layers, so that their errors add up to the least while no more far
/// pairs are kept than with P probes everywhere: from one probe each, always the step with the largest fall of error
/// per pair. Returns probes [layer][set]. With nothing measured (no curve has a far pair) every set gets P.
std::vector<std::vector<int64_t>> allocate_probes(const std::vector<ProbeCurves>& layers,
                                                  const std::vector<int64_t>& grid, int64_t groups_per_token);

/// The exponent e under which probes_of_set(e, P, K) gives `probes` (1 where every set probes everything, P = K).
double probe_exponent(int64_t probes, int64_t groups_per_token, int64_t groups);

}  // namespace focus
