#include "train/straight_through.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "base/error.h"

namespace focus {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Query rows handled at once: temporaries are [B, Hq, kRows, T].
constexpr int64_t kRows = 128;
constexpr double kLargestRatio = 4.0;

/// Far pairs of rows [begin, end) and keys [low, end): bool [B or 1, 1, R, Tk].
at::Tensor far_pairs(const AttentionParams& params, int64_t sinks, int64_t begin, int64_t end, int64_t low,
                     const at::TensorOptions& index) {
  const at::Tensor i = at::arange(begin, end, index).view({1, 1, -1, 1});
  const at::Tensor j = at::arange(low, end, index);
  at::Tensor start = at::zeros({1, 1, 1, 1}, index);
  if (params.document_start) {
    start = params.document_start->narrow(1, begin, end - begin).to(index).view({-1, 1, end - begin, 1});
  }
  const at::Tensor distance = i - j;
  at::Tensor far = (distance > params.window).logical_and(j >= start + sinks);
  if (params.layer_window > 0) far = far.logical_and(distance < params.layer_window);
  return far;
}

class StraightThroughFunction : public torch::autograd::Function<StraightThroughFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& out, const at::Tensor& probed,
                            const at::Tensor& membership, const at::Tensor& lse, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v, const AttentionParams& params, int64_t sinks) {
    context->save_for_backward({out, probed, membership, lse, q, k, v, params.document_start.value_or(at::Tensor())});
    context->saved_data["window"] = params.window;
    context->saved_data["layer_window"] = params.layer_window;
    context->saved_data["scale"] = params.scale;
    context->saved_data["softcap"] = params.softcap;
    context->saved_data["sinks"] = sinks;
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    AttentionParams params;
    params.window = data["window"].toInt();
    params.layer_window = data["layer_window"].toInt();
    params.scale = data["scale"].toDouble();
    params.softcap = data["softcap"].toDouble();
    if (saved[7].defined()) params.document_start = saved[7];
    const int64_t sinks = data["sinks"].toInt();

    const at::Tensor &q = saved[4], &k = saved[5];
    const int64_t batch = q.size(0), kv_heads = k.size(1), group = q.size(1) / kv_heads, tokens = q.size(2);
    const at::ScalarType type = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor keys = k.to(type), values = saved[6].to(type);
    const at::Tensor p = saved[1].to(type), m = saved[2].to(type);
    const int64_t sets = p.size(1);
    // [B, Hq, T, X] -> rows of each KV head [B, Hkv, G * R, X]
    const auto rows_of = [&](const at::Tensor& x, int64_t begin, int64_t rows) {
      return x.narrow(2, begin, rows).to(type).reshape({batch, kv_heads, group * rows, -1});
    };
    const at::TensorOptions index = at::TensorOptions(at::kLong).device(q.device());
    at::Tensor dp = at::zeros(p.sizes(), p.options()), dm = at::zeros(m.sizes(), m.options());
    for (int64_t begin = 0; begin < tokens; begin += kRows) {
      const int64_t end = std::min(begin + kRows, tokens), rows = end - begin;
      const int64_t low = params.layer_window > 0 ? std::max<int64_t>(0, begin - params.layer_window + 1) : 0;
      if (end - 1 - low <= params.window) continue;
      const at::Tensor d_out = rows_of(gradients[0], begin, rows);
      const at::Tensor delta = (d_out * rows_of(saved[0], begin, rows)).sum(-1, /*keepdim=*/true);
      at::Tensor ratio = at::matmul(rows_of(q, begin, rows), keys.narrow(2, low, end - low).transpose(-1, -2));
      ratio.mul_(params.scale);
      if (params.softcap > 0) ratio.div_(params.softcap).tanh_().mul_(params.softcap);
      ratio.sub_(rows_of(saved[3].unsqueeze(-1), begin, rows)).exp_().clamp_max_(kLargestRatio);
      at::Tensor dw = at::matmul(d_out, values.narrow(2, low, end - low).transpose(-1, -2));
      dw.sub_(delta).mul_(ratio);
      // The heads of a set share its mask: [B, Hg, R, Tk].
      dw = dw.view({batch, sets, -1, rows, end - low}).sum(2);
      dw.masked_fill_(far_pairs(params, sinks, begin, end, low, index).logical_not(), 0.0);
      dp.narrow(2, begin, rows).add_(at::matmul(dw, m.narrow(2, low, end - low)));
      dm.narrow(2, low, end - low).add_(at::matmul(dw.transpose(-1, -2), p.narrow(2, begin, rows)));
    }
    return {gradients[0], dp.to(saved[1].scalar_type()), dm.to(saved[2].scalar_type()), {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor straight_through(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& probed, const at::Tensor& membership,
                            const AttentionParams& params, int64_t sinks) {
  require(out.sizes() == q.sizes() && lse.sizes() == q.sizes().slice(0, 3) && q.size(2) == k.size(2) &&
              v.sizes() == k.sizes(),
          "straight-through: out [{}], q [{}] and k [{}] do not fit", fmt::join(out.sizes(), ", "),
          fmt::join(q.sizes(), ", "), fmt::join(k.sizes(), ", "));
  require(probed.dim() == 4 && probed.sizes() == membership.sizes() && probed.size(0) == q.size(0) &&
              (probed.size(1) == 1 || probed.size(1) == k.size(1)) && probed.size(2) == q.size(2),
          "straight-through: probes [{}] and memberships [{}], expected both [{}, 1 or {}, {}, lists]",
          fmt::join(probed.sizes(), ", "), fmt::join(membership.sizes(), ", "), q.size(0), k.size(1), q.size(2));
  return StraightThroughFunction::apply(out, probed, membership, lse.detach(), q.detach(), k.detach(), v.detach(),
                                        params, sinks);
}

at::Tensor soft_probes(const at::Tensor& scores, const std::vector<int64_t>& probes, double sharpness) {
  const int64_t lists = scores.size(-1), sets = scores.size(-3);
  require(std::ssize(probes) == sets, "soft probes: {} numbers of probes for {} sets", probes.size(), sets);
  at::Tensor threshold;
  {
    const at::NoGradGuard no_grad;
    const int64_t most = std::min(*std::max_element(probes.begin(), probes.end()) + 1, lists);
    const at::Tensor best = std::get<0>(scores.detach().topk(most, -1));  // [..., Hg, T, most]
    std::vector<at::Tensor> by_set;
    for (int64_t set = 0; set < sets; ++set) {
      const at::Tensor ranked = best.select(-3, set);  // [..., T, most]
      const int64_t count = probes[static_cast<size_t>(set)];
      require(count >= 1 && count <= lists, "soft probes: {} of {} lists", count, lists);
      const at::Tensor last = ranked.narrow(-1, count - 1, 1);
      by_set.push_back(count < lists ? (last + ranked.narrow(-1, count, 1)) * 0.5 : last - 10.0);
    }
    threshold = at::stack(by_set, -3);
  }
  return at::sigmoid((scores - threshold) * sharpness);
}

}  // namespace focus
