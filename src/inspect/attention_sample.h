#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <vector>

#include "attention/method.h"
#include "attention/routing/router.h"

namespace focus {

/// Distances i - j fall into bins 0, 1, 2-3, 4-7, ...: bin b > 0 begins at 2^(b-1).
inline constexpr int64_t kDistanceBins = 24;
int64_t distance_bin(int64_t distance);

/// Where full attention puts its mass, summed over sampled query rows and heads. A pair counts once, for the first of
/// window, sinks and lists that allows it.
struct MassSums {
  double rows = 0;  ///< Rows times heads: the total mass.
  double window = 0, sinks = 0, lists = 0;
  double shuffled_lists = 0;  ///< As `lists` with the keys' lists shuffled among the tokens of the window.
  std::array<double, kDistanceBins> mass{}, mass_kept{};
  std::array<int64_t, kDistanceBins> pairs{}, pairs_kept{};  ///< Summed over rows and list sets.

  MassSums& operator+=(const MassSums& other);
};

/// A key beyond the window that a query reaches through a list, with the mass that full attention of one head gives it.
struct FarPair {
  int64_t set = 0;
  int64_t head = 0;
  int64_t query = 0;  ///< Positions in the window.
  int64_t key = 0;
  int32_t list = 0;
  double mass = 0;
};

/// Lists of one window's keys and probes of its queries; Hg list sets for the Hkv KV heads (or 1 for all).
struct WindowLists {
  at::Tensor key_group;  ///< int32 [Hg, T], contiguous, CPU.
  at::Tensor shuffled;   ///< The same with the lists of the tokens permuted.
  at::Tensor probes;     ///< int32 [Hg, T, slots].
  int64_t window = 0;
  int64_t sinks = 0;
};

/// Full attention's probabilities of some query rows over the whole window, float32 [Hkv, Hq / Hkv, R, T], causal and
/// within the layer's own window; one document, batch 1.
at::Tensor attention_rows(const AttentionInput& input, const at::Tensor& rows);

/// Adds up the mass of `rows` (positions, ascending); `probabilities` from attention_rows. Appends to `far` the
/// strongest far pair of each row and head, if there is one.
MassSums measure_mass(const WindowLists& lists, const std::vector<int64_t>& rows, const at::Tensor& probabilities,
                      int64_t layer_window, std::vector<FarPair>& far);

/// Pairs that a window's first `lengths[x]` tokens keep, summed over list sets; exact, from running sizes of the lists.
/// Lengths ascend; those beyond the window give 0.
std::vector<int64_t> pairs_by_length(const WindowLists& lists, int64_t layer_window,
                                     const std::vector<int64_t>& lengths);

}  // namespace focus
