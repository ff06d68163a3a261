#pragma once

#include "report/table.h"

namespace focus {

/// Fills in `cell.error` from its other members: in quadrature the standard errors over repetitions and over samples; a
/// quarter of the distance from low to high; 0 of a count; NaN of none of them. `log`: samples and errors are relative.
void estimate_error(Cell& cell, bool log);

/// Figures of windows that enter a mean with these weights, as samples whose plain mean is the weighted one and whose
/// spread gives its standard error as a ratio's, linearised: mean + n w / sum(w) (figure - mean). Throws Error for
/// unequal numbers.
std::vector<double> weighted_samples(const std::vector<double>& figures, const std::vector<double>& weights);

/// Two standard errors that `n` values tell, in proportion of Student's t with n - 1 degrees of freedom to the normal
/// distribution at 97.5%; n >= 2. 13 standard errors for 2 values, 2.4 for 8.
double noise_factor(size_t n);

/// left - right * times with its standard error and noise: paired over repetitions and, where both have as many, over
/// samples. `log`: of logarithms.
Comparison compare(const Cell& left, const Cell& right, double times, bool log);

/// Below and above: held when the difference has the right sign by more than the noise, not held when it has the other
/// one by as much, else unclear; without noise the sign alone. Near: held when |difference| and noise stay within the
/// margin, not held when it is beyond by as much. NaN: unclear.
Verdict judge(double difference, double noise, RecipeClaim::Relation relation, double margin);

/// All held: held; any not held: not held; else unclear.
Verdict join_verdicts(const std::vector<Comparison>& comparisons);

/// The claim over the rows of the table.
JudgedClaim judge_claim(const RecipeClaim& claim, const Table& table);

}  // namespace focus
