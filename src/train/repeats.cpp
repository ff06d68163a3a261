#include "train/repeats.h"

#include <algorithm>
#include <cmath>

#include "train/random_stream.h"

namespace focus {

void repeat_passage(std::vector<int32_t>& ids, int64_t seed, int64_t index) {
  const int64_t length = std::ssize(ids);
  RandomStream random({seed, index, kRepeatsStream});
  const int64_t passage = std::max<int64_t>(1, random.between(length / 8, 3 * length / 10));
  // The two occurrences do not overlap and the first one lies inside the window.
  const int64_t lag = random.between(std::min(passage + length / 4, length - passage), length - passage);
  if (lag < 1 || passage + lag > length) return;
  std::copy_n(ids.begin() + (length - passage - lag), passage, ids.end() - passage);
}

bool takes_repeat(int64_t index, double share) {
  return std::floor(static_cast<double>(index + 1) * share) > std::floor(static_cast<double>(index) * share);
}

}  // namespace focus
