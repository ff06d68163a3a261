#include "attention/methods/performer.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"

namespace focus {

namespace {

constexpr int64_t kTile = 64;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Exponents of the features, [..., m].
at::Tensor exponents(const at::Tensor& x, const at::Tensor& w) {
  return at::matmul(x, w.t()) - x.square().sum(-1, true) / 2;
}

}  // namespace

at::Tensor orthogonal_features(int64_t features, int64_t dim, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::TensorOptions options(at::kDouble);
  std::vector<at::Tensor> blocks;
  for (int64_t done = 0; done < features; done += dim) {
    const at::Tensor q = std::get<0>(at::linalg_qr(at::randn({dim, dim}, generator, options)));
    blocks.push_back(q.t().slice(0, 0, std::min(dim, features - done)));
  }
  return at::cat(blocks) * at::randn({features, dim}, generator, options).norm(2, 1, true);
}

Performer::Performer(int64_t features, uint64_t seed) : features_(features), seed_(seed) {
  require(features > 0, "performer: features {} must be positive", features);
}

at::Tensor Performer::attend_document(const DocumentView& document, int64_t& kept) {
  refuse_layer_window(document);
  require(document.softcap == 0.0, "method performer: layer {} caps its scores, which features cannot", document.layer);
  const int64_t tokens = document.k.size(1);
  const at::Tensor w =
      orthogonal_features(features_, document.k.size(-1), seed_ + static_cast<uint64_t>(document.layer))
          .to(document.k.device());
  const double root = std::sqrt(document.scale);
  // Features of a key are kept as exp(e - peak) with the largest of its exponents e apart, and the sums of row i
  // without the factor exp(M_i), M_i the largest peak up to i, which cancels: long keys underflow otherwise. No later
  // key enters.
  at::Tensor state;    // [Hkv, m, D + 1]: S and z of the keys before the tile, without exp(highest)
  at::Tensor highest;  // [Hkv, 1]: M of the last key before the tile
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < tokens; begin += kTile) {
    const int64_t end = std::min(tokens, begin + kTile);
    const at::Tensor power_k = exponents(document.k.slice(1, begin, end).to(at::kDouble) * root, w);
    const at::Tensor peak = power_k.amax(-1).detach();              // [Hkv, keys]
    const at::Tensor phi_k = (power_k - peak.unsqueeze(-1)).exp();  // [Hkv, keys, m]
    at::Tensor running = std::get<0>(peak.cummax(-1));              // [Hkv, keys]: M_i
    if (state.defined()) running = at::maximum(running, highest);
    const at::Tensor v = document.v.slice(1, begin, end).to(at::kDouble);
    const at::Tensor values = at::cat({v, at::ones_like(v.slice(-1, 0, 1))}, -1);
    const int64_t first = std::max(begin, document.first());
    if (first < end) {
      const at::Tensor q = document.q.slice(2, first - document.first(), end - document.first()).to(at::kDouble);
      const at::Tensor power = exponents(q * root, w);
      const at::Tensor phi_q = (power - power.amax(-1, true).detach()).exp();  // any factor of a row cancels
      const at::Tensor own = running.slice(1, first - begin).unsqueeze(-1);    // [Hkv, rows, 1]
      const at::Tensor later = at::ones({end - first, end - begin}, at::kBool).triu(first - begin + 1).to(own.device());
      const at::Tensor factor = (peak.unsqueeze(1) - own).masked_fill(later, -kInfinity).exp();  // [Hkv, rows, keys]
      const at::Tensor inside = at::matmul(phi_q, phi_k.unsqueeze(1).transpose(-1, -2)) * factor.unsqueeze(1);
      at::Tensor sums = at::matmul(inside, values.unsqueeze(1));
      if (state.defined()) {
        const at::Tensor before = (highest.unsqueeze(-1) - own).exp();  // [Hkv, rows, 1]
        sums = sums + at::matmul(phi_q, state.unsqueeze(1)) * before.unsqueeze(1);
      }
      parts.push_back(sums.slice(-1, 0, -1) / sums.slice(-1, -1).clamp_min(std::numeric_limits<double>::min()));
    }
    const at::Tensor last = running.slice(1, -1);  // [Hkv, 1]
    const at::Tensor more = at::matmul((phi_k * (peak - last).exp().unsqueeze(-1)).transpose(-1, -2), values);
    state = state.defined() ? state * (highest - last).exp().unsqueeze(-1) + more : more;
    highest = last;
  }
  kept += document.q.size(2) * features_ * document.k.size(0) * (document.q.size(1) + 1);
  return at::cat(parts, 2).to(document.q.scalar_type());
}

}  // namespace focus
