#include "train/trainer.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace focus {

std::vector<int64_t> trained_layers(const std::vector<int64_t>& chosen, int64_t count) {
  if (chosen.empty()) {
    std::vector<int64_t> all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), int64_t{0});
    return all;
  }
  const bool ascending = std::adjacent_find(chosen.begin(), chosen.end(), std::greater_equal<>()) == chosen.end();
  require(ascending && chosen.front() >= 0 && chosen.back() < count,
          "layers to train: ascending numbers below {} are expected", count);
  return chosen;
}

}  // namespace focus
