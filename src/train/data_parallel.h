#pragma once

#include <cstdint>
#include <vector>

#include "data/token_windows.h"
#include "dist/collective.h"

namespace focus {

/// What the processes of a run do together in a step of training. A null Collective is a single process.

/// This process's next window: of every `size` windows in a row the one at its rank, so that all processes together
/// see what one process with larger batches would.
TrainWindows::Window next_window_of(const Collective* processes, TrainWindows& windows);

/// The sum over all processes.
int64_t sum_over(Collective* processes, int64_t mine);

/// The value of every process, by rank.
std::vector<double> gather_from(Collective* processes, double mine);

/// The sum of every process's part of the loss. Throws Error on all of them, naming the first rank whose part is not
/// finite.
double joint_loss(Collective* processes, double mine);

}  // namespace focus
