#include "attention/routing/symmetric.h"

#include <algorithm>
#include <numeric>

#include "attention/routing/config.h"
#include "base/error.h"

namespace focus {

int64_t count_patterns(int64_t groups, int64_t groups_per_token) {
  constexpr int64_t kCap = 1'000'000;
  const int64_t k = std::min(groups_per_token, groups - groups_per_token);
  if (k < 0) return 0;
  int64_t count = 1;
  for (int64_t i = 1; i <= k; ++i) {
    count = count * (groups - k + i) / i;
    if (count > kCap) return kCap;
  }
  return count;
}

PatternTable::PatternTable(int64_t groups, int64_t groups_per_token) : groups_(groups), per_token_(groups_per_token) {
  patterns_ = count_patterns(groups, groups_per_token);
  if (patterns_ < 1 || patterns_ > kMaxGroups) {
    fail_usage("--symmetric: --groups {} with --groups-per-token {} give more than {} membership patterns", groups,
               groups_per_token, kMaxGroups);
  }
  const size_t width = static_cast<size_t>(per_token_) + 1;
  binomials_.assign((static_cast<size_t>(groups_) + 1) * width, 0);
  for (int64_t n = 0; n <= groups_; ++n) {
    for (int64_t k = 0; k <= per_token_; ++k) {
      // Terms beyond the pattern count are never summed; capped, they cannot overflow.
      binomials_[static_cast<size_t>(n) * width + static_cast<size_t>(k)] = count_patterns(n, k);
    }
  }
  const size_t k = static_cast<size_t>(per_token_);
  members_.resize(static_cast<size_t>(patterns_) * k);
  std::vector<int32_t> chosen(k);
  std::iota(chosen.begin(), chosen.end(), 0);
  for (int64_t p = 0; p < patterns_; ++p) {
    std::copy(chosen.begin(), chosen.end(), members_.begin() + p * per_token_);
    // Next subset in colexicographic order: raise the first member that can grow, reset those before it.
    size_t i = 0;
    while (i + 1 < k && chosen[i] + 1 == chosen[i + 1]) ++i;
    ++chosen[i];
    for (size_t j = 0; j < i; ++j) chosen[j] = static_cast<int32_t>(j);
  }
  probes_ = patterns_ - count_patterns(groups_ - per_token_, per_token_);
  sharing_.reserve(static_cast<size_t>(patterns_ * probes_));
  std::vector<bool> mine(static_cast<size_t>(groups_));
  for (int64_t p = 0; p < patterns_; ++p) {
    std::fill(mine.begin(), mine.end(), false);
    for (int32_t g : members(p)) mine[static_cast<size_t>(g)] = true;
    for (int64_t q = 0; q < patterns_; ++q) {
      const auto other = members(q);
      const auto in_mine = [&mine](int32_t g) { return mine[static_cast<size_t>(g)]; };
      if (std::any_of(other.begin(), other.end(), in_mine)) sharing_.push_back(static_cast<int32_t>(q));
    }
  }
}

int64_t PatternTable::rank(std::span<const int32_t> groups) const {
  const size_t width = static_cast<size_t>(per_token_) + 1;
  std::vector<int32_t> sorted(groups.begin(), groups.end());
  std::sort(sorted.begin(), sorted.end());
  int64_t sum = 0;
  for (size_t i = 0; i < sorted.size(); ++i) sum += binomials_[static_cast<size_t>(sorted[i]) * width + i + 1];
  return sum;
}

std::span<const int32_t> PatternTable::members(int64_t pattern) const {
  return {members_.data() + pattern * per_token_, static_cast<size_t>(per_token_)};
}

std::span<const int32_t> PatternTable::sharing(int64_t pattern) const {
  return {sharing_.data() + pattern * probes_, static_cast<size_t>(probes_)};
}

}  // namespace focus
