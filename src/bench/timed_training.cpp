#include "bench/timed_training.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "bench/timing.h"

namespace focus {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

TimedTraining::Clock& clock_of(AutogradContext* context) {
  return *reinterpret_cast<TimedTraining::Clock*>(context->saved_data["clock"].toInt());
}

/// Passes q, k and v on; the backward pass of what follows has ended when their gradients come.
struct BackwardEnds : torch::autograd::Function<BackwardEnds> {
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               int64_t clock) {
    context->saved_data["clock"] = clock;
    return {q.view_as(q), k.view_as(k), v.view_as(v)};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    TimedTraining::Clock& clock = clock_of(context);
    clock.backward_ms += now_ms(BenchClock::kWall) - clock.backward_began;
    return {gradients[0], gradients[1], gradients[2], at::Tensor()};
  }
};

/// Passes the output on; the backward pass of what came before begins with its gradient.
struct BackwardBegins : torch::autograd::Function<BackwardBegins> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& out, int64_t clock) {
    context->saved_data["clock"] = clock;
    return out.view_as(out);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    clock_of(context).backward_began = now_ms(BenchClock::kWall);
    return {gradients[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor TimedTraining::attend(const AttentionInput& input) {
  const auto clock = reinterpret_cast<int64_t>(&clock_);
  const bool trains = at::GradMode::is_enabled() && input.q.requires_grad();
  AttentionInput marked = input;
  if (trains) {
    const variable_list passed = BackwardEnds::apply(input.q, input.k, input.v, clock);
    marked.q = passed[0];
    marked.k = passed[1];
    marked.v = passed[2];
  }
  const double start = now_ms(BenchClock::kWall);
  const at::Tensor out = inner_.attend(marked);
  clock_.forward_ms += now_ms(BenchClock::kWall) - start;
  return trains ? BackwardBegins::apply(out, clock) : out;
}

void TimedTraining::reset_pairs() {
  inner_.reset_pairs();
  clock_ = {};
}

}  // namespace focus
