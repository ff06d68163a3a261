#pragma once

#include "report/table.h"

namespace focus {

/// Fills in `cell.error` from its other members: in quadrature the standard errors over repetitions and over samples; a
/// quarter of the distance from low to high; 0 of a count; NaN of none of them. `log`: samples and errors are relative.
void estimate_error(Cell& cell, bool log);

/// left - right * times with its standard error: paired over repetitions and, where both have as many, over samples.
/// `log`: of logarithms.
Comparison compare(const Cell& left, const Cell& right, double times, bool log);

/// The rule of two standard errors. Below and above: held when the difference has the right sign by more than two
/// standard errors, not held when it has the other one by as much, else unclear; without noise the sign alone. Near:
/// held when |difference| and two standard errors stay within the margin, not held when it is beyond by as much.
Verdict judge(double difference, double error, RecipeClaim::Relation relation, double margin);

/// All held: held; any not held: not held; else unclear.
Verdict join_verdicts(const std::vector<Comparison>& comparisons);

/// The claim over the rows of the table.
JudgedClaim judge_claim(const RecipeClaim& claim, const Table& table);

}  // namespace focus
