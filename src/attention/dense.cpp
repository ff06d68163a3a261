#include "attention/dense.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace focus {

namespace {

constexpr int64_t kRows = 256;

/// Query heads that share a KV head become rows of one head: [B, Hq, T, D] -> [B, Hkv, G * T, D], no copy of k and v.
at::Tensor fold_heads(const at::Tensor& q, int64_t kv_heads) {
  return q.reshape({q.size(0), kv_heads, q.size(1) / kv_heads * q.size(2), q.size(3)});
}

at::Tensor repeat_heads(const at::Tensor& x, int64_t heads) {
  const int64_t group = heads / x.size(1);
  if (group == 1) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), group, x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

/// Scores by hand, for softcap: q [B, H, R, D], mask bool [B, 1, R, Tk].
at::Tensor softcapped(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mask,
                      const AttentionParams& params) {
  const at::Tensor scores = at::matmul(q, k.transpose(-1, -2)).to(at::kFloat) * (params.scale / params.softcap);
  const at::Tensor capped = (scores.tanh() * params.softcap).masked_fill(mask.logical_not(), -INFINITY);
  return at::matmul(capped.softmax(-1).to(v.scalar_type()), v);
}

/// Rows [first, first + rows) of the queries.
at::Tensor chunk(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionParams& params,
                 int64_t first, int64_t rows) {
  const int64_t tq = q.size(2);
  const int64_t begin = k.size(2) - tq + first;  // Position of the first row.
  const int64_t end = begin + rows;
  const int64_t low = params.layer_window > 0 ? std::max<int64_t>(0, begin - params.layer_window + 1) : 0;
  const auto long_options = q.options().dtype(at::kLong);
  const at::Tensor i = at::arange(begin, end, long_options).unsqueeze(-1);  // [R, 1]
  const at::Tensor j = at::arange(low, end, long_options);                  // [Tk']
  at::Tensor mask = j <= i;                                                 // [R, Tk']
  if (params.layer_window > 0) mask = mask.logical_and(i - j < params.layer_window);
  mask = mask.unsqueeze(0).unsqueeze(0);
  at::Tensor empty_rows;
  if (params.document_start.has_value()) {
    const at::Tensor start = params.document_start->narrow(1, begin, rows).unsqueeze(1).unsqueeze(-1);  // [B, 1, R, 1]
    empty_rows = start > i;
    // A row without keys attends to itself and is zeroed afterwards, which keeps its gradient zero instead of NaN.
    mask = mask.logical_and(j >= start).logical_or(empty_rows.logical_and(j == i));
  }
  const int64_t group = q.size(1) / k.size(1);
  const at::Tensor rows_q = fold_heads(q.narrow(2, first, rows), k.size(1));
  const at::Tensor keys = k.narrow(2, low, end - low);
  const at::Tensor values = v.narrow(2, low, end - low);
  const at::Tensor rows_mask = mask.repeat({1, 1, group, 1});
  at::Tensor out = params.softcap > 0
                       ? softcapped(rows_q, keys, values, rows_mask, params)
                       : at::scaled_dot_product_attention(rows_q, keys, values, rows_mask, 0.0, false, params.scale);
  out = out.reshape({q.size(0), q.size(1), rows, v.size(3)});
  return empty_rows.defined() ? out.masked_fill(empty_rows, 0) : out;
}

}  // namespace

at::Tensor dense_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionParams& params) {
  require(!params.key_group.has_value(), "dense attention takes no lists");
  const int64_t tq = q.size(2);
  const int64_t tk = k.size(2);
  require(q.size(1) % k.size(1) == 0, "{} query heads are not a multiple of {} key heads", q.size(1), k.size(1));
  require(tq <= tk, "{} queries exceed the {} keys", tq, tk);
  const bool plain = !params.document_start.has_value() && params.softcap == 0 &&
                     (params.layer_window == 0 || params.layer_window >= tk);
  if (plain && tq == 1) {
    return at::scaled_dot_product_attention(fold_heads(q, k.size(1)), k, v, {}, 0.0, false, params.scale)
        .reshape({q.size(0), q.size(1), 1, v.size(3)});
  }
  if (plain && tq == tk) {
    return at::scaled_dot_product_attention(q, repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1)), {}, 0.0, true,
                                            params.scale);
  }
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < tq; first += kRows) {
    parts.push_back(chunk(q, k, v, params, first, std::min(kRows, tq - first)));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, 2);
}

}  // namespace focus
