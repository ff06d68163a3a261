#pragma once

#include <cstdint>
#include <vector>

namespace focus {

/// Lets a training window end with a repeat of an earlier passage of its own, so that retrieval over a distance is
/// among what a router is trained on: the last a tokens become those that stand `lag` tokens before them. a is between
/// 1/8 and 3/10 of the window, the rest is drawn too, all from (seed, index).
void repeat_passage(std::vector<int32_t>& ids, int64_t seed, int64_t index);

/// Whether window `index` of a run is one with a repeat, when a share of `share` of them are to be: evenly spread.
bool takes_repeat(int64_t index, double share);

}  // namespace focus
