// Calls the attention op of an installed Focus: 8 lists of keys, each query probing 2 of them, a window of 128.
#include <ATen/ATen.h>

#include <cstdio>

#include "attention/op.h"

int main() {
  at::manual_seed(0);
  const at::Tensor q = at::randn({1, 8, 1024, 64});  // [B, Hq, T, D]
  const at::Tensor k = at::randn({1, 2, 1024, 64});  // [B, Hkv, T, D]
  const at::Tensor v = at::randn({1, 2, 1024, 64});

  focus::AttentionParams params;
  params.scale = 1.0 / 8.0;
  const at::Tensor dense = std::get<0>(focus::attention(q, k, v, params));

  params.window = 128;
  params.key_group = at::randint(8, {1, 2, 1024}, at::kInt);
  params.probes = at::rand({1, 2, 1024, 8}).argsort(int64_t{-1}).slice(-1, 0, 2).to(at::kInt);
  const auto [sparse, lse] = focus::attention(q, k, v, params);
  const focus::PairCount pairs = focus::count_pairs(1, 1024, 1024, params);
  const double change = (sparse - dense).abs().max().item<double>();

  // Probing every list is dense attention again.
  params.probes = at::arange(8, at::kInt).expand({1, 2, 1024, 8});
  const at::Tensor all = std::get<0>(focus::attention(q, k, v, params));
  const double error = (all - dense).abs().max().item<double>();
  std::printf("pairs kept %.3f, largest change %.3f; all lists probed: largest difference to dense %.1e\n",
              static_cast<double>(pairs.kept) / static_cast<double>(pairs.causal), change, error);
  return error < 1e-5 && change > 0.0 ? 0 : 1;
}
