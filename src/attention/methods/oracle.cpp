#include "attention/methods/oracle.h"

#include <limits>

#include "base/error.h"

namespace focus {

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// bool like Tile::scores: far keys by falling weight until near keys and these hold `share` of all visible weight.
at::Tensor by_mass(const Tile& tile, double share) {
  const at::Tensor scores = tile.scores.detach();
  const at::Tensor weights = scores.masked_fill(tile.visible.logical_not(), kMinusInfinity).softmax(-1);
  const at::Tensor near = (weights * tile.near).sum(-1, true);
  const auto [sorted, order] = (weights * tile.far).sort(-1, true);
  const at::Tensor before = near + sorted.cumsum(-1) - sorted;
  return at::zeros_like(scores, at::kBool).scatter(-1, order, before.lt(share).logical_and(sorted.gt(0)));
}

}  // namespace

Oracle::Oracle(const NearKeys& near, int64_t top_keys, std::optional<double> top_mass)
    : FarKeyAttention(near), top_keys_(top_keys), top_mass_(top_mass) {
  require(top_keys >= 0, "oracle: top_keys {} is negative", top_keys);
}

FarKeyAttention::Chooser Oracle::chooser(const DocumentView& /*document*/) {
  return [this](const Tile& tile) {
    Choice choice;
    if (top_mass_.has_value()) {
      choice.keep = by_mass(tile, *top_mass_);
    } else {
      choice.keep = largest(tile.scores.detach().masked_fill(tile.far.logical_not(), kMinusInfinity), top_keys_);
    }
    return choice;
  };
}

}  // namespace focus
