#include "train/data_parallel.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>

#include "base/error.h"

namespace focus {

TrainWindows::Window next_window_of(const Collective* processes, TrainWindows& windows) {
  if (processes == nullptr) return windows.next();
  windows.skip(processes->rank());
  TrainWindows::Window window = windows.next();
  windows.skip(processes->size() - 1 - processes->rank());
  return window;
}

int64_t sum_over(Collective* processes, int64_t mine) {
  if (processes == nullptr) return mine;
  at::Tensor sum = at::scalar_tensor(mine, at::TensorOptions(at::kLong));
  processes->all_reduce(sum);
  return sum.item<int64_t>();
}

std::vector<double> gather_from(Collective* processes, double mine) {
  if (processes == nullptr) return {mine};
  at::Tensor slots = at::zeros({processes->size()}, at::kDouble);
  slots[processes->rank()].fill_(mine);
  processes->all_reduce(slots);
  return {slots.data_ptr<double>(), slots.data_ptr<double>() + slots.numel()};
}

double joint_loss(Collective* processes, double mine) {
  const std::vector<double> parts = gather_from(processes, mine);
  for (size_t r = 0; r < parts.size(); ++r) {
    require(std::isfinite(parts[r]), "the loss {}is not finite; a lower --learning-rate may help",
            processes == nullptr ? "" : fmt::format("of rank {} ", r));
  }
  return std::accumulate(parts.begin(), parts.end(), 0.0);
}

}  // namespace focus
