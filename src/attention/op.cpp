#include "attention/op.h"

#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "attention/checks.h"
#include "kernels/attention_kernel.h"

namespace focus {

namespace {

using OptionalTensor = std::optional<at::Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The same arguments in the same order in every signature below: q, k, v, key_group, probes, document_start, window,
// layer_window, scale, softcap.
using Forward = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                   const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                                                   int64_t, int64_t, double, double);
using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                                const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                                                const OptionalTensor&, const OptionalTensor&,
                                                                const OptionalTensor&, int64_t, int64_t, double,
                                                                double);

const c10::TypedOperatorHandle<Forward>& forward_op() {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("focus::attention", "").typed<Forward>();
  return op;
}

const c10::TypedOperatorHandle<Backward>& backward_op() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("focus::attention_backward", "").typed<Backward>();
  return op;
}

kernels::AttentionProblem make_problem(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                       const AttentionParams& params) {
  return {q,
          k,
          v,
          params.key_group,
          params.probes,
          params.document_start,
          params.window,
          params.layer_window,
          static_cast<float>(params.scale),
          static_cast<float>(params.softcap)};
}

std::tuple<at::Tensor, at::Tensor> forward_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                               const OptionalTensor& key_group, const OptionalTensor& probes,
                                               const OptionalTensor& document_start, int64_t window,
                                               int64_t layer_window, double scale, double softcap) {
  const AttentionParams params{key_group, probes, document_start, window, layer_window, scale, softcap};
  check_attention(q, k, v, params);
  if (q.scalar_type() == at::kDouble) {
    auto [out, lse] = reference_attention(q, k, v, params);
    return {out, lse.to(at::kFloat)};
  }
  const kernels::AttentionProblem problem = make_problem(q, k, v, params);
  kernels::AttentionOutput output = kernels::select_attention_kernel(problem).forward(problem);
  return {output.out, output.lse};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward_cpu(
    const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
    const at::Tensor& lse, const OptionalTensor& key_group, const OptionalTensor& probes,
    const OptionalTensor& document_start, int64_t window, int64_t layer_window, double scale, double softcap) {
  const AttentionParams params{key_group, probes, document_start, window, layer_window, scale, softcap};
  check_attention(q, k, v, params);
  const kernels::AttentionProblem problem = make_problem(q, k, v, params);
  kernels::AttentionGradient gradient =
      kernels::select_attention_kernel(problem).backward(problem, {out, lse}, grad_out);
  return {gradient.dq, gradient.dk, gradient.dv};
}

// Shapes may be symbolic here, in which case they cannot be compared with each other yet.
std::tuple<at::Tensor, at::Tensor> forward_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                const OptionalTensor& key_group, const OptionalTensor& probes,
                                                const OptionalTensor& document_start, int64_t window,
                                                int64_t layer_window, double scale, double softcap) {
  bool symbolic = false;
  for (const OptionalTensor& tensor :
       {OptionalTensor(q), OptionalTensor(k), OptionalTensor(v), key_group, probes, document_start}) {
    symbolic = symbolic || (tensor && tensor->unsafeGetTensorImpl()->has_symbolic_sizes_strides());
  }
  if (!symbolic) check_attention(q, k, v, {key_group, probes, document_start, window, layer_window, scale, softcap});
  const auto sizes = q.sym_sizes();
  return {at::empty_symint(sizes, q.options()), at::empty_symint(sizes.slice(0, 3), q.options().dtype(at::kFloat))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> backward_meta(const at::Tensor&, const at::Tensor& q,
                                                             const at::Tensor& k, const at::Tensor& v,
                                                             const at::Tensor&, const at::Tensor&,
                                                             const OptionalTensor&, const OptionalTensor&,
                                                             const OptionalTensor&, int64_t, int64_t, double, double) {
  return {at::empty_symint(q.sym_sizes(), q.options()), at::empty_symint(k.sym_sizes(), k.options()),
          at::empty_symint(v.sym_sizes(), v.options())};
}

class AttentionFunction : public torch::autograd::Function<AttentionFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const OptionalTensor& key_group, const OptionalTensor& probes,
                               const OptionalTensor& document_start, int64_t window, int64_t layer_window, double scale,
                               double softcap) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    auto [out, lse] =
        forward_op().call(q, k, v, key_group, probes, document_start, window, layer_window, scale, softcap);
    context->save_for_backward({q, k, v, out, lse, key_group.value_or(at::Tensor()), probes.value_or(at::Tensor()),
                                document_start.value_or(at::Tensor())});
    context->saved_data["window"] = window;
    context->saved_data["layer_window"] = layer_window;
    context->saved_data["scale"] = scale;
    context->saved_data["softcap"] = softcap;
    context->mark_non_differentiable({lse});
    return {out, lse};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const auto optional = [&](size_t x) { return saved[x].defined() ? OptionalTensor(saved[x]) : std::nullopt; };
    auto [dq, dk, dv] = backward_op().call(
        grads[0], saved[0], saved[1], saved[2], saved[3], saved[4], optional(5), optional(6), optional(7),
        context->saved_data["window"].toInt(), context->saved_data["layer_window"].toInt(),
        context->saved_data["scale"].toDouble(), context->saved_data["softcap"].toDouble());
    return {dq, dk, dv, {}, {}, {}, {}, {}, {}, {}};
  }
};

std::tuple<at::Tensor, at::Tensor> forward_autograd(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                    const OptionalTensor& key_group, const OptionalTensor& probes,
                                                    const OptionalTensor& document_start, int64_t window,
                                                    int64_t layer_window, double scale, double softcap) {
  // float64 serves gradient checks: the reference, differentiated by ATen.
  if (q.scalar_type() == at::kDouble && q.device().is_cpu()) {
    const AttentionParams params{key_group, probes, document_start, window, layer_window, scale, softcap};
    check_attention(q, k, v, params);
    auto [out, lse] = reference_attention(q, k, v, params);
    return {out, lse.to(at::kFloat)};
  }
  variable_list outputs =
      AttentionFunction::apply(q, k, v, key_group, probes, document_start, window, layer_window, scale, softcap);
  return {outputs[0], outputs[1]};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const AttentionParams& params) {
  return forward_op().call(q, k, v, params.key_group, params.probes, params.document_start, params.window,
                           params.layer_window, params.scale, params.softcap);
}

TORCH_LIBRARY(focus, library) {
  library.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor? key_group, Tensor? probes, Tensor? document_start, int window, "
      "int layer_window, float scale, float softcap) -> (Tensor, Tensor)");
  library.def(
      "attention_backward(Tensor grad_out, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor? key_group, "
      "Tensor? probes, Tensor? document_start, int window, int layer_window, float scale, float softcap) -> (Tensor, "
      "Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(focus, CPU, library) {
  library.impl("attention", forward_cpu);
  library.impl("attention_backward", backward_cpu);
}

TORCH_LIBRARY_IMPL(focus, Meta, library) {
  library.impl("attention", forward_meta);
  library.impl("attention_backward", backward_meta);
}

TORCH_LIBRARY_IMPL(focus, Autograd, library) {
  library.impl("attention", forward_autograd);
  library.impl("attention_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace focus
