#include "attention/dense.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "attention/checks.h"
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

/// The keys of the last token of every row, one run each.
std::vector<KeyChoice> last_token_keys(int64_t batch, int64_t tk, const AttentionParams& params) {
  const int64_t first = params.layer_window > 0 ? std::max<int64_t>(0, tk - params.layer_window) : 0;
  std::vector<KeyChoice> chosen(static_cast<size_t>(batch), KeyChoice{{}, first, tk});
  if (!params.document_start.has_value()) return chosen;
  const at::Tensor starts = params.document_start->select(1, tk - 1).to(at::kCPU, at::kLong).contiguous();
  for (int64_t b = 0; b < batch; ++b) {
    KeyChoice& choice = chosen[static_cast<size_t>(b)];
    choice.begin = std::min(tk, std::max(first, starts.const_data_ptr<int64_t>()[b]));
  }
  return chosen;
}

}  // namespace

at::Tensor dense_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                           const AttentionParams& params) {
  require(!params.key_group.has_value(), "dense attention takes no lists");
  const int64_t heads = q.size(1);
  const int64_t kv_heads = keys.size(1);
  const int64_t tq = q.size(2);
  const int64_t tk = keys.size(2);
  const bool recorded =
      at::GradMode::is_enabled() && (q.requires_grad() || keys.requires_grad() || values.requires_grad());
  if (tq == 1 && !recorded && heads % kv_heads == 0 && q.device().is_cpu() && q.scalar_type() != at::kDouble &&
      keys.stride(3) == 1 && values.stride(3) == 1) {
    check_pairs(q.size(0), kv_heads, tq, tk, params);
    return decode_attention(q, keys, values, last_token_keys(q.size(0), tk, params), 1, params.scale, params.softcap);
  }
  const at::Tensor k = keys.to(q.scalar_type());
  const at::Tensor v = values.to(q.scalar_type());
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
