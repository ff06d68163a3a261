#include "train/soft_gate_attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "attention/dense.h"
#include "attention/routing/formulas.h"
#include "base/error.h"

namespace focus {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Query rows handled at once: temporaries are [B, Hq, kRows, T].
constexpr int64_t kRows = 128;

at::ScalarType wide_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// Rows [begin, end) of the score matrix and all they are made of. Hkv KV heads with G query heads each; Tk keys from
/// position `low` on.
struct Block {
  at::Tensor q;        // [B, Hkv, G * R, D]
  at::Tensor k;        // [B, Hkv, Tk, D]
  at::Tensor v;        // [B, Hkv, Tk, D]
  at::Tensor g_rows;   // [B, Hg, R, K]
  at::Tensor g_keys;   // [B, Hg, Tk, K]
  at::Tensor raw;      // scale * q.k [B, Hkv, G, R, Tk]
  at::Tensor gate;     // [B, Hg, 1, R, Tk]
  at::Tensor score;    // raw * gate under the softcap, [B, Hkv, G, R, Tk]
  at::Tensor weights;  // its softmax over allowed pairs, 0 elsewhere
  int64_t low = 0;
};

/// q [B, Hkv, G, T, D] and the others in the wide dtype.
struct Inputs {
  at::Tensor q, k, v, g;
};

Inputs widen(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& g) {
  const at::ScalarType type = wide_type(q);
  const int64_t kv_heads = k.size(1);
  return {q.to(type).reshape({q.size(0), kv_heads, q.size(1) / kv_heads, q.size(2), q.size(3)}), k.to(type), v.to(type),
          g.to(type)};
}

Block make_block(const Inputs& in, const SoftGateParams& params, int64_t begin, int64_t end) {
  const int64_t batch = in.q.size(0), kv_heads = in.q.size(1), group = in.q.size(2), rows = end - begin;
  Block block;
  block.low = params.layer_window > 0 ? std::max<int64_t>(0, begin - params.layer_window + 1) : 0;
  const int64_t keys = end - block.low;
  const at::TensorOptions index = at::TensorOptions(at::kLong).device(in.q.device());
  const at::Tensor i = at::arange(begin, end, index).view({1, 1, 1, rows, 1});
  const at::Tensor j = at::arange(block.low, end, index);  // [Tk]
  at::Tensor start = at::zeros({1, 1, 1, 1, 1}, index);
  if (params.document_start) {
    start = params.document_start->narrow(1, begin, rows).to(index).view({batch, 1, 1, rows, 1});
  }
  at::Tensor allowed = (j <= i).logical_and(j >= start);  // [B or 1, 1, 1, R, Tk]
  if (params.layer_window > 0) allowed = allowed.logical_and(i - j < params.layer_window);
  const at::Tensor local = (i - j <= params.window).logical_or(j < start + params.sinks);
  const at::Tensor some = allowed.any(-1, /*keepdim=*/true);

  block.q = in.q.narrow(3, begin, rows).reshape({batch, kv_heads, group * rows, in.q.size(4)});
  block.k = in.k.narrow(2, block.low, keys);
  block.v = in.v.narrow(2, block.low, keys);
  block.g_rows = in.g.narrow(2, begin, rows);
  block.g_keys = in.g.narrow(2, block.low, keys);
  block.raw =
      at::matmul(block.q, block.k.transpose(-1, -2)).view({batch, kv_heads, group, rows, keys}).mul_(params.scale);
  block.gate = at::matmul(block.g_rows, block.g_keys.transpose(-1, -2)).mul_(params.sharpness).sigmoid_().unsqueeze(2);
  block.gate = block.gate.masked_fill(local, 1.0);
  block.score = block.raw * block.gate;
  if (params.softcap > 0) block.score.div_(params.softcap).tanh_().mul_(params.softcap);
  block.weights = block.score.masked_fill(allowed.logical_not(), -std::numeric_limits<double>::infinity())
                      .masked_fill(some.logical_not(), 0.0)
                      .softmax(-1)
                      .masked_fill(some.logical_not(), 0.0);
  return block;
}

/// Sums over the dimensions in which `like` has size 1.
at::Tensor reduce_to(const at::Tensor& x, const at::Tensor& like) {
  return x.sum_to_size(like.sizes());
}

class SoftGateFunction : public torch::autograd::Function<SoftGateFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& g, const SoftGateParams& params) {
    context->save_for_backward({q, k, v, g});
    context->saved_data["window"] = params.window;
    context->saved_data["sinks"] = params.sinks;
    context->saved_data["sharpness"] = params.sharpness;
    context->saved_data["scale"] = params.scale;
    context->saved_data["softcap"] = params.softcap;
    context->saved_data["layer_window"] = params.layer_window;
    if (params.document_start) context->saved_data["document_start"] = *params.document_start;

    const Inputs in = widen(q, k, v, g);
    at::Tensor out = at::empty(q.sizes(), q.options());
    for (int64_t begin = 0; begin < q.size(2); begin += kRows) {
      const int64_t end = std::min(begin + kRows, q.size(2));
      const Block block = make_block(in, params, begin, end);
      const at::Tensor flat = block.weights.view({q.size(0), k.size(1), -1, block.k.size(2)});  // [B, Hkv, G * R, Tk]
      out.narrow(2, begin, end - begin)
          .copy_(at::matmul(flat, block.v).view({q.size(0), q.size(1), end - begin, v.size(3)}));
    }
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& output_gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1];
    auto& data = context->saved_data;
    SoftGateParams params{.window = data["window"].toInt(),
                          .sinks = data["sinks"].toInt(),
                          .sharpness = data["sharpness"].toDouble(),
                          .scale = data["scale"].toDouble(),
                          .softcap = data["softcap"].toDouble(),
                          .layer_window = data["layer_window"].toInt(),
                          .document_start = {}};
    if (const auto start = data.find("document_start"); start != data.end()) {
      params.document_start = start->second.toTensor();
    }
    const Inputs in = widen(q, k, saved[2], saved[3]);
    // The first layer's q, k and v come from frozen weights alone.
    const bool need_q = context->needs_input_grad(0), need_k = context->needs_input_grad(1),
               need_v = context->needs_input_grad(2), need_g = context->needs_input_grad(3);
    at::Tensor dq, dk, dv, dg;
    if (need_q) dq = at::empty(in.q.sizes(), in.q.options());
    if (need_k) dk = at::zeros(in.k.sizes(), in.k.options());
    if (need_v) dv = at::zeros(in.v.sizes(), in.v.options());
    if (need_g) dg = at::zeros(in.g.sizes(), in.g.options());
    const at::Tensor out_gradient = output_gradients[0].to(in.q.scalar_type()).reshape(in.q.sizes());
    for (int64_t begin = 0; begin < q.size(2); begin += kRows) {
      const int64_t rows = std::min(kRows, q.size(2) - begin);
      const Block block = make_block(in, params, begin, begin + rows);
      const int64_t keys = block.k.size(2);
      const auto flat = [&](const at::Tensor& x) { return x.reshape({q.size(0), k.size(1), -1, x.size(-1)}); };
      const at::Tensor d_out = flat(out_gradient.narrow(3, begin, rows));  // [B, Hkv, G * R, D]
      if (need_v) dv.narrow(2, block.low, keys).add_(at::matmul(flat(block.weights).transpose(-1, -2), d_out));
      at::Tensor d = at::matmul(d_out, block.v.transpose(-1, -2)).view(block.weights.sizes());
      d = block.weights * (d - (d * block.weights).sum(-1, /*keepdim=*/true));  // Of the scores.
      if (params.softcap > 0) d.mul_(1.0 - (block.score / params.softcap).square_());
      if (need_g) {
        // d sigmoid = gate (1 - gate), which is 0 for local pairs, whose gate is 1.
        at::Tensor d_affinity = reduce_to(d * block.raw, block.gate);
        d_affinity = (d_affinity * block.gate * (1.0 - block.gate)).mul_(params.sharpness).squeeze(2);
        dg.narrow(2, begin, rows).add_(at::matmul(d_affinity, block.g_keys));
        dg.narrow(2, block.low, keys).add_(at::matmul(d_affinity.transpose(-1, -2), block.g_rows));
      }
      if (!need_q && !need_k) continue;
      const at::Tensor d_raw = flat((d * block.gate).mul_(params.scale));
      if (need_q) dq.narrow(3, begin, rows).copy_(at::matmul(d_raw, block.k).view(dq.narrow(3, begin, rows).sizes()));
      if (need_k) dk.narrow(2, block.low, keys).add_(at::matmul(d_raw.transpose(-1, -2), block.q));
    }
    if (need_q) dq = dq.view(q.sizes()).to(q.scalar_type());
    if (need_k) dk = dk.to(k.scalar_type());
    if (need_v) dv = dv.to(saved[2].scalar_type());
    if (need_g) dg = dg.to(saved[3].scalar_type());
    return {dq, dk, dv, dg, at::Tensor()};
  }
};

}  // namespace

at::Tensor soft_gate_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& memberships, const SoftGateParams& params) {
  require(q.dim() == 4 && k.dim() == 4 && v.sizes() == k.sizes() && q.size(0) == k.size(0) && q.size(2) == k.size(2) &&
              q.size(3) == k.size(3) && q.size(1) % k.size(1) == 0,
          "soft gate: q [{}], k [{}] and v [{}] do not fit", fmt::join(q.sizes(), ", "), fmt::join(k.sizes(), ", "),
          fmt::join(v.sizes(), ", "));
  require(memberships.dim() == 4 && memberships.size(0) == q.size(0) && memberships.size(2) == q.size(2) &&
              (memberships.size(1) == 1 || memberships.size(1) == k.size(1)),
          "soft gate: memberships [{}], expected [{}, 1 or {}, {}, groups]", fmt::join(memberships.sizes(), ", "),
          q.size(0), k.size(1), q.size(2));
  require(!params.document_start || params.document_start->sizes() == at::IntArrayRef({q.size(0), q.size(2)}),
          "soft gate: document_start must be [{}, {}]", q.size(0), q.size(2));
  return SoftGateFunction::apply(q, k, v, memberships, params);
}

SoftGateAttention::SoftGateAttention(const RoutingConfig& config, double sharpness,
                                     const std::map<int64_t, LayerRouter>& routers, const GroupBalance& balance)
    : config_(config), sharpness_(sharpness), routers_(routers), balance_(balance) {
  config_.validate();
  require(config_.symmetric, "the soft gate belongs to the symmetric form");
}

std::unique_ptr<LayerCache> SoftGateAttention::make_cache(int64_t, int64_t, int64_t) const {
  fail("method {}: it reads the whole sequence and has no cache", name());
}

at::Tensor SoftGateAttention::auxiliary_loss() const {
  at::Tensor sum;
  for (const auto& [layer, loss] : losses_) sum = sum.defined() ? sum + loss : loss;
  return sum.defined() ? sum / static_cast<double>(losses_.size()) : sum;
}

at::Tensor SoftGateAttention::attend(const AttentionInput& input) {
  require(input.cache == nullptr, "method {}: it reads the whole sequence and takes no cache", name());
  AttentionParams dense;
  dense.document_start = input.document_start;
  dense.layer_window = input.layer_window;
  const PairCount count = count_pairs(input.q.size(0), input.q.size(2), input.k.size(2), dense);
  const int64_t sets = config_.shared ? 1 : input.k.size(1);
  pairs_.kept += count.kept * sets;
  pairs_.causal += count.causal * sets;
  const auto found = routers_.find(input.layer);
  if (found == routers_.end()) {
    dense.scale = input.scale;
    dense.softcap = input.softcap;
    return dense_attention(input.q, input.k, input.v, dense);
  }
  const LayerRouter& router = found->second;
  const at::Device device = input.hidden.device();
  const bool stops = balance_.mitigation == GroupMitigation::kStopGradient;
  const at::Tensor hidden = stops ? input.hidden.detach() : input.hidden;
  const at::Tensor scores =
      symmetric_scores(hidden.to(at::kFloat), router.projection.to(device), router.centroids.to(device), config_.tau);
  at::Tensor potentials;
  if (balance_.normaliser == GroupNormaliser::kPotentials) potentials = router.potentials.to(device);
  const at::Tensor memberships = group_memberships(scores, potentials, balance_.normaliser, config_.sinkhorn_iters);
  if (balance_.mitigation == GroupMitigation::kEntropyBalance) {
    losses_[input.layer] = entropy_balance_loss(memberships, balance_.balance_weight);
  }
  hidden_[input.layer] = input.hidden.detach();
  scores_[input.layer] = scores.detach();
  memberships_[input.layer] = memberships.detach();
  return soft_gate_attention(input.q, input.k, input.v, memberships,
                             {.window = config_.window,
                              .sinks = config_.sinks,
                              .sharpness = sharpness_,
                              .scale = input.scale,
                              .softcap = input.softcap,
                              .layer_window = input.layer_window,
                              .document_start = input.document_start});
}

}  // namespace focus
