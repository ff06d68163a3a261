#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "inspect/token_class.h"

namespace focus {

/// What lies in one list over a text.
struct ListStats {
  int64_t size = 0;
  std::array<int64_t, kTokenClasses> classes{};
  TokenClass majority = TokenClass::kSpace;      ///< The class with most tokens, the first on ties.
  double purity = 0;                             ///< Share of the majority class among the list's tokens.
  double token_entropy = 0;                      ///< Of the token ids in the list, bits.
  std::vector<std::pair<int32_t, int64_t>> top;  ///< Most frequent token ids with counts, at most `top_tokens`.
};

/// Statistics of every list of one set: `lists` of all tokens of a text (ids below `ids`, -1 none), their token ids and
/// classes. Result by list id.
std::vector<ListStats> list_stats(std::span<const int16_t> lists, std::span<const int32_t> tokens,
                                  std::span<const TokenClass> classes, int64_t ids, int64_t top_tokens);

/// Means over all tokens in lists: each token takes its list's value.
struct MeanStats {
  int64_t tokens = 0;
  double purity = 0;
  double token_entropy = 0;
};
MeanStats mean_stats(std::span<const ListStats> lists);

/// Agreement of two ways to put the same tokens in lists, 2 I(A;B) / (H(A) + H(B)) (normalised mutual information; A.
/// Strehl and J. Ghosh, 2002, with the arithmetic mean): 0 independent, 1 the same up to names. Tokens in no list of
/// either are left out; 0 when neither side has more than one list.
double list_agreement(std::span<const int16_t> a, std::span<const int16_t> b);

}  // namespace focus
