#include <limits>

#include "attention/op.h"

namespace focus {

namespace {

// [B, Hg, ...] -> one entry per query head.
at::Tensor per_head(const at::Tensor& tensor, int64_t heads) {
  return tensor.size(1) == 1 ? tensor : tensor.repeat_interleave(heads / tensor.size(1), 1);
}

}  // namespace

at::Tensor allowed_mask(int64_t batch, int64_t tq, int64_t tk, const AttentionParams& params) {
  at::Device device = at::kCPU;
  if (params.key_group) {
    device = params.key_group->device();
  } else if (params.document_start) {
    device = params.document_start->device();
  }
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const at::Tensor i = at::arange(tk - tq, tk, options).unsqueeze(1);  // [Tq, 1]
  const at::Tensor j = at::arange(tk, options).unsqueeze(0);           // [1, Tk]
  at::Tensor mask = (j <= i).view({1, 1, tq, tk});
  if (params.layer_window > 0) mask = mask & (i - j < params.layer_window);
  if (params.document_start) {
    mask = mask & (j >= params.document_start->narrow(1, tk - tq, tq).view({-1, 1, tq, 1}));
  }
  if (params.key_group) {
    const at::Tensor groups = params.key_group->unsqueeze(2);  // [B, Hg, 1, Tk]
    at::Tensor near = (i - j <= params.window).view({1, 1, tq, tk});
    for (int64_t slot = 0; slot < params.probes->size(3); ++slot) {
      near = near | ((groups >= 0) & (groups == params.probes->select(3, slot).unsqueeze(3)));
    }
    mask = mask & near;
  }
  const int64_t sets = params.key_group ? params.key_group->size(1) : 1;
  return mask.expand({batch, sets, tq, tk}).contiguous();
}

std::tuple<at::Tensor, at::Tensor> reference_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                       const AttentionParams& params) {
  const int64_t heads = q.size(1);
  const at::Tensor keys = per_head(k, heads);
  const at::Tensor values = per_head(v, heads);
  const at::Tensor allowed =
      per_head(allowed_mask(q.size(0), q.size(2), k.size(2), params), heads).to(q.device());  // [B, Hq or 1, Tq, Tk]
  const at::Tensor some = allowed.any(-1, true);                                              // [B, Hq or 1, Tq, 1]

  // Scores in the input's precision, softmax in at least float32.
  at::Tensor scores = at::matmul(q, keys.transpose(-2, -1)) * params.scale;  // [B, Hq, Tq, Tk]
  if (q.scalar_type() != at::kDouble) scores = scores.to(at::kFloat);
  if (params.softcap > 0) scores = params.softcap * at::tanh(scores / params.softcap);
  scores = scores.masked_fill(~allowed, -std::numeric_limits<double>::infinity()).masked_fill(~some, 0.0);
  const at::Tensor weights = at::softmax(scores, -1).masked_fill(~allowed, 0.0).to(q.scalar_type());
  const at::Tensor lse =
      at::logsumexp(scores.detach(), -1).masked_fill(~some.squeeze(-1), -std::numeric_limits<double>::infinity());
  return {at::matmul(weights, values), lse};
}

}  // namespace focus
