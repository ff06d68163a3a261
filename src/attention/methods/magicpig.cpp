#include "attention/methods/magicpig.h"

#include <ATen/CPUGeneratorImpl.h>

#include <numbers>

#include "base/error.h"

namespace focus {

namespace {

// Buckets int32 [..., L] of projections [..., L * K].
at::Tensor buckets(const at::Tensor& projections, int64_t bits) {
  const at::Tensor place = at::arange(bits, at::TensorOptions(at::kFloat).device(projections.device())).exp2();
  return at::matmul(projections.gt(0).to(at::kFloat).unflatten(-1, {-1, bits}), place).to(at::kInt);
}

// ln of the probability u of being drawn, for cosines of any shape. For small p^K the difference cancels in float32.
at::Tensor log_draw_probability(const at::Tensor& cosine, int64_t bits, int64_t tables) {
  const at::Tensor p = 1 - cosine.to(at::kDouble).clamp(-1, 1).acos() / std::numbers::pi;
  const at::Tensor same = p.pow(bits);
  const at::Tensor none = (-same).log1p() * tables;
  const at::Tensor once = ((-same).log1p() * (tables - 1)).exp() * same * tables;
  return (-none.expm1() - once).clamp_min(1e-30).log();
}

at::Tensor unit(const at::Tensor& x) {
  return x / x.norm(2, -1, true).clamp_min(1e-20);
}

}  // namespace

MagicPig::MagicPig(const NearKeys& near, int64_t bits, int64_t tables, uint64_t seed)
    : FarKeyAttention(near), bits_(bits), tables_(tables), seed_(seed) {
  require(bits > 0 && bits <= 24 && tables >= 2, "magicpig: {} bits or {} tables out of range", bits, tables);
}

FarKeyAttention::Chooser MagicPig::chooser(const DocumentView& document) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed_ + static_cast<uint64_t>(document.layer));
  const at::Tensor planes =
      at::randn({document.k.size(-1), tables_ * bits_}, generator, at::TensorOptions(at::kFloat)).to(document.k);
  const at::Tensor projected = at::matmul(document.k.detach(), planes);  // [Hkv, Tk, L * K]
  return [this, planes, projected](const Tile& tile) {
    const int64_t t = tile.k.size(1);
    const at::Tensor q = tile.q.detach();
    const at::Tensor k = tile.k.detach();
    const int64_t before = tile.aligned_start();
    const at::Tensor centre = before > 0 ? k.slice(1, 0, before).mean(1, true) : at::zeros_like(k.slice(1, 0, 1));
    const at::Tensor key_buckets = buckets(projected.slice(1, 0, t) - at::matmul(centre, planes), bits_);
    const at::Tensor query_buckets = buckets(at::matmul(q, planes), bits_);
    at::Tensor hits = at::zeros(tile.scores.sizes(), tile.q.options().dtype(at::kShort));
    for (int64_t table = 0; table < tables_; ++table) {
      hits += query_buckets.select(-1, table).unsqueeze(-1).eq(key_buckets.select(-1, table).unsqueeze(1).unsqueeze(2));
    }
    const at::Tensor cosine = at::matmul(unit(q), unit(k - centre).unsqueeze(1).transpose(-1, -2));
    Choice choice;
    choice.keep = hits.ge(2);
    choice.bias = -log_draw_probability(cosine, bits_, tables_).to(tile.scores.scalar_type());
    return choice;
  };
}

}  // namespace focus
