#include "train/data_parallel.h"

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

void sum_gradients(Collective* processes, const std::vector<std::pair<std::string, at::Tensor>>& trained,
                   int64_t bucket_bytes) {
  if (processes == nullptr) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> bucket;
  int64_t bytes = 0;
  const auto flush = [&] {
    if (bucket.empty()) return;
    std::vector<at::Tensor> parts;
    for (const at::Tensor& gradient : bucket) parts.push_back(gradient.reshape(-1));
    at::Tensor flat = at::cat(parts);
    processes->all_reduce(flat);
    int64_t begin = 0;
    for (at::Tensor& gradient : bucket) {
      gradient.copy_(flat.slice(0, begin, begin + gradient.numel()).view(gradient.sizes()));
      begin += gradient.numel();
    }
    bucket.clear();
    bytes = 0;
  };
  for (const auto& [name, tensor] : trained) {
    if (!tensor.grad().defined()) continue;
    bucket.push_back(tensor.grad());
    bytes += static_cast<int64_t>(tensor.grad().nbytes());
    if (bytes >= bucket_bytes) flush();
  }
  flush();
}

}  // namespace focus
