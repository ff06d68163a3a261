#include "train/distillation.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace focus {

SampledTeacher::SampledTeacher(const DistillationLayer& layer, const at::Tensor& rows, int64_t window, int64_t sinks)
    : rows_(rows), v_(layer.v), output_weight_(layer.output_weight) {
  const at::NoGradGuard no_grad;
  const int64_t kv_heads = layer.k.size(0), keys = layer.k.size(1), head_dim = layer.k.size(2);
  const int64_t group = layer.q.size(0) / kv_heads, count = rows.size(0);
  const at::Tensor query_position = rows.unsqueeze(1);                                          // [R, 1]
  const at::Tensor key_position = at::arange(keys, at::TensorOptions(at::kLong)).unsqueeze(0);  // [1, T]
  const at::Tensor distance = query_position - key_position;
  at::Tensor start = at::zeros_like(query_position);
  if (layer.document_start.defined()) start = layer.document_start.index_select(0, rows).unsqueeze(1);
  at::Tensor visible = (distance >= 0) & (key_position >= start);
  causal_pairs_ = visible.sum().item<int64_t>();
  if (layer.layer_window > 0) visible = visible & (distance < layer.layer_window);
  far_ = (distance > window) & (key_position >= start + sinks) & visible;
  near_pairs_ = visible.sum().item<int64_t>() - far_.sum().item<int64_t>();

  const at::Tensor queries = layer.q.index_select(1, rows).reshape({kv_heads, group * count, head_dim});
  at::Tensor scores = at::bmm(queries, layer.k.transpose(1, 2)).mul_(layer.scale).view({kv_heads, group, count, keys});
  if (layer.softcap > 0) scores = scores.div_(layer.softcap).tanh_().mul_(layer.softcap);
  scores.masked_fill_(visible.logical_not(), -std::numeric_limits<double>::infinity());
  exponentials_ = scores.sub_(std::get<0>(scores.max(-1, /*keepdim=*/true))).exp_();
  heads_ = head_outputs(exponentials_);
  head_squares_ = head_squares(heads_).clamp_min(1e-30);
  output_ = block_output(heads_);
  output_square_ = output_.square().sum().item<double>();
}

at::Tensor SampledTeacher::head_outputs(const at::Tensor& exponentials) const {
  const int64_t kv_heads = exponentials.size(0), group = exponentials.size(1), count = exponentials.size(2);
  const at::Tensor total = exponentials.sum(-1, /*keepdim=*/true);
  return at::bmm(exponentials.reshape({kv_heads, group * count, -1}), v_).view({kv_heads, group, count, -1}).div(total);
}

at::Tensor SampledTeacher::block_output(const at::Tensor& head_outputs) const {
  // [Hkv, G, R, D] -> [R, Hq * D]
  const at::Tensor rows = head_outputs.permute({2, 0, 1, 3}).reshape({head_outputs.size(2), -1});
  return at::matmul(rows, output_weight_.t());
}

at::Tensor SampledTeacher::head_squares(const at::Tensor& head_outputs) const {
  const at::Tensor heads = head_outputs.flatten(0, 1);  // [Hq, R, D]
  const at::Tensor weight = output_weight_.view({output_weight_.size(0), heads.size(0), heads.size(2)});
  return at::bmm(heads, weight.permute({1, 2, 0})).square().sum({1, 2});
}

at::Tensor SampledTeacher::weighted(const at::Tensor& weights) const {
  const at::Tensor masked = at::where(far_, weights, at::ones({}, weights.options()));  // [H, R, T]
  return exponentials_ * masked.unsqueeze(1);
}

at::Tensor SampledTeacher::output_error(const at::Tensor& weights) const {
  const at::Tensor output = block_output(head_outputs(weighted(weights)));
  return (output - output_).square().sum() / std::max(output_square_, 1e-30);
}

at::Tensor SampledTeacher::head_errors(const at::Tensor& dropped) const {
  const at::NoGradGuard no_grad;
  return head_squares(head_outputs(exponentials_.masked_fill(dropped.unsqueeze(1), 0)) - heads_) / head_squares_;
}

at::Tensor far_threshold(const at::Tensor& scores, const at::Tensor& far, double fraction) {
  const at::NoGradGuard no_grad;
  const at::Tensor wanted = (far.sum(-1).to(at::kDouble) * fraction).ceil().to(at::kLong).clamp_min(1);  // [R]
  const int64_t most = std::min(wanted.max().item<int64_t>(), scores.size(-1));
  const at::Tensor best =
      std::get<0>(scores.masked_fill(far.logical_not(), -std::numeric_limits<double>::infinity()).topk(most, -1));
  return best.gather(-1, (wanted - 1).view({1, -1, 1}).expand({scores.size(0), -1, 1}));
}

at::Tensor sample_rows(int64_t first, int64_t length, int64_t count, at::Generator& generator) {
  const int64_t available = length - first;
  require(available > 0, "no query row to sample: {} tokens, the first {} see everything", length, first);
  const at::Tensor order = at::randperm(available, generator, at::TensorOptions(at::kLong));
  return std::get<0>(order.narrow(0, 0, std::min(count, available)).sort()) + first;
}

}  // namespace focus
