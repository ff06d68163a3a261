#include "attention/dense.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "attention/decode.h"
#include "base/error.h"

namespace focus {

namespace {

/// [B, Hkv, T, D] -> [B, Hq, T, D], each KV head repeated for the query heads that share it.
at::Tensor repeat_heads(const at::Tensor& x, int64_t heads) {
  const int64_t group = heads / x.size(1);
  if (group == 1) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), group, x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

}  // namespace

at::Tensor dense_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionParams& params) {
  require(!params.key_group.has_value(), "dense attention takes no lists");
  const int64_t heads = q.size(1);
  const int64_t kv_heads = k.size(1);
  const int64_t tq = q.size(2);
  const int64_t tk = k.size(2);
  const bool recorded = at::GradMode::is_enabled() && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  if (tq == 1 && !recorded && !params.document_start.has_value() && heads % kv_heads == 0 && q.device().is_cpu() &&
      q.scalar_type() != at::kDouble && k.stride(3) == 1 && v.stride(3) == 1) {
    const int64_t first = params.layer_window > 0 ? std::max<int64_t>(0, tk - params.layer_window) : 0;
    const std::vector<KeyChoice> chosen(static_cast<size_t>(q.size(0)), KeyChoice{{}, first, tk});
    return decode_attention(q, k, v, chosen, 1, params.scale, params.softcap);
  }
  const bool plain = !params.document_start.has_value() && params.softcap == 0 &&
                     (params.layer_window == 0 || params.layer_window >= tk) && heads % kv_heads == 0;
  if (plain && tq == 1) {
    // The query heads that share a KV head become rows of one head, so that k and v are not copied.
    const at::Tensor rows = q.reshape({q.size(0), kv_heads, heads / kv_heads, q.size(3)});
    return at::scaled_dot_product_attention(rows, k, v, {}, 0.0, false, params.scale).reshape(q.sizes());
  }
  // On the CPU the op is the faster one and needs no copies of k and v for heads that share them (docs/performance.md).
  const bool own = q.device().is_cpu() && (q.scalar_type() == at::kFloat || q.scalar_type() == at::kBFloat16);
  if (plain && tq == tk && !own) {
    return at::scaled_dot_product_attention(q, repeat_heads(k, heads), repeat_heads(v, heads), {}, 0.0, true,
                                            params.scale);
  }
  return std::get<0>(attention(q, k, v, params));
}

}  // namespace focus
