#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace focus {

/// What is added to a frozen linear map W (LoRA, Hu et al. 2021, section 4.1): scale * B A.
struct LowRankUpdate {
  at::Tensor a;  ///< [r, in]
  at::Tensor b;  ///< [out, r]
  double scale = 1.0;
};

/// A linear map of a model, y = W x + bias, maybe with a low-rank update beside it.
struct Projection {
  at::Tensor weight;         ///< [out, in], or [in, out] as GPT-2 stores it.
  at::Tensor bias;           ///< [out], undefined for none.
  bool input_first = false;  ///< The weight is [in, out].
  std::shared_ptr<const LowRankUpdate> update;

  int64_t in_features() const { return weight.size(input_first ? 0 : 1); }
  int64_t out_features() const { return weight.size(input_first ? 1 : 0); }
  /// The weight as [out, in], a view.
  at::Tensor matrix() const { return input_first ? weight.t() : weight; }
  /// x [..., in] -> [..., out].
  at::Tensor operator()(const at::Tensor& x) const;
  /// y = W x + bias with the update added to it.
  at::Tensor updated(const at::Tensor& y, const at::Tensor& x) const;
};

/// What each of several projections makes of x; products of few rows share their passes over the threads
/// (linear_each).
std::vector<at::Tensor> project_each(const at::Tensor& x, const std::vector<const Projection*>& projections);

/// Projections by the name of their module in Hugging Face's naming.
using NamedProjections = std::vector<std::pair<std::string, Projection*>>;

}  // namespace focus
