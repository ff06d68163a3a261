#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "attention/op.h"

namespace focus {

/// Which lists a query probes: its key's own (P = 1), or P of them at random, all alike or in proportion to their size.
enum class ProbeChoice { kOwn, kUniform, kProportional };

/// Lists drawn at random for measuring.
struct RandomListsSpec {
  int64_t batch = 1;
  int64_t sets = 1;  ///< Hg
  int64_t length = 1;
  int64_t groups = 8;            ///< K
  int64_t groups_per_token = 1;  ///< P; symmetric: k
  int64_t sinks = 4;
  double skew = 1.0;  ///< Largest list as a multiple of the mean; sizes fall geometrically.
  ProbeChoice choice = ProbeChoice::kOwn;
  bool symmetric = false;  ///< The paper's form: lists are membership patterns.
  uint64_t seed = 0;
};

/// Relative sizes of `groups` lists that fall geometrically and of which the largest is `skew` times the mean; their
/// sum is 1. Throws UsageError when skew is below 1 or reaches the number of groups.
std::vector<double> list_shares(int64_t groups, double skew);

/// key_group and probes in the form of the op: list 0 holds the sinks and is probed by all, lists 1 .. K (or the
/// patterns) the other keys.
AttentionParams random_lists(const RandomListsSpec& spec);

}  // namespace focus
