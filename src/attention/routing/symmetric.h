#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace focus {

/// Number of ways to choose k of K groups, capped at a million.
int64_t count_patterns(int64_t groups, int64_t groups_per_token);

/// The paper's symmetric top-k (a token belongs to k of K groups on both sides; two tokens meet if they share one),
/// lowered onto disjoint lists: a key's list is its membership pattern, a query probes every pattern that shares a
/// group with its own. Patterns are numbered 0 .. C(K, k) - 1 in the combinatorial number system: members c_1 < ... <
/// c_k have the rank sum of C(c_i, i).
class PatternTable {
 public:
  /// Throws UsageError when there are more than 4095 patterns.
  PatternTable(int64_t groups, int64_t groups_per_token);

  int64_t groups() const { return groups_; }
  int64_t groups_per_token() const { return per_token_; }
  int64_t patterns() const { return patterns_; }
  /// Patterns that share a group with a given one, itself included; the same number for each.
  int64_t probes() const { return probes_; }
  /// Number of the pattern with these k distinct groups, in any order.
  int64_t rank(std::span<const int32_t> groups) const;
  /// The pattern's groups, ascending.
  std::span<const int32_t> members(int64_t pattern) const;
  /// All patterns that share a group with `pattern`, ascending.
  std::span<const int32_t> sharing(int64_t pattern) const;

 private:
  int64_t groups_;
  int64_t per_token_;
  int64_t patterns_ = 0;
  int64_t probes_ = 0;
  std::vector<int64_t> binomials_;  // [groups + 1, k + 1]
  std::vector<int32_t> members_;    // [patterns, k]
  std::vector<int32_t> sharing_;    // [patterns, probes]
};

}  // namespace focus
