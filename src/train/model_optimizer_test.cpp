#include "train/model_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace focus {
namespace {

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble).to(at::kFloat).set_requires_grad(true);
}

void give(const at::Tensor& tensor, const at::Tensor& gradient) {
  tensor.mutable_grad() = gradient.clone();
}

TEST(ModelOptimizer, AdamWIsItsFormula) {
  const at::Tensor matrix = leaf({3, 5}), bias = leaf({5});
  const double lr = 0.01, decay = 0.1, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  ModelOptimizer optimizer({{"matrix", matrix}, {"bias", bias}}, {.beta2 = beta2, .weight_decay = decay});
  for (const at::Tensor& tensor : {matrix, bias}) {
    at::Tensor expected = tensor.detach().to(at::kDouble), m = at::zeros_like(expected), v = at::zeros_like(expected);
    for (int step = 1; step <= 4; ++step) {
      const at::Tensor g = at::randn(tensor.sizes());
      give(tensor, g);
      if (tensor.dim() == 2) expected = expected * (1 - lr * decay);
      m = beta1 * m + (1 - beta1) * g.to(at::kDouble);
      v = beta2 * v + (1 - beta2) * g.to(at::kDouble).square();
      expected =
          expected - lr * (m / (1 - std::pow(beta1, step))) / ((v / (1 - std::pow(beta2, step))).sqrt() + epsilon);
      const double norm = optimizer.step(lr, 0);
      EXPECT_NEAR(norm, g.norm().item<double>(), 1e-5);
      EXPECT_LE((tensor.detach().to(at::kDouble) - expected).abs().max().item<double>(), 1e-6);
    }
  }
}

TEST(ModelOptimizer, SgdFollowsTheClippedGradient) {
  const at::Tensor x = leaf({4});
  ModelOptimizer optimizer({{"x", x}}, {.kind = OptimizerKind::kSgd});
  const at::Tensor before = x.detach().clone();
  give(x, at::full({4}, 3.0));  // Norm 6.
  EXPECT_DOUBLE_EQ(optimizer.step(0.1, 1.0), 6.0);
  EXPECT_TRUE(at::allclose(x.detach(), before - 0.1 * 0.5, 1e-5, 1e-6));
  EXPECT_FALSE(x.grad().defined());
}

TEST(ModelOptimizer, GradientsOfAnotherLayoutAreRead) {
  const at::Tensor x = leaf({3, 4});
  ModelOptimizer optimizer({{"x", x}}, {.kind = OptimizerKind::kSgd});
  const at::Tensor before = x.detach().clone(), g = at::randn({4, 3});
  x.mutable_grad() = g.t();
  optimizer.step(1.0, 0);
  EXPECT_TRUE(at::allclose(x.detach(), before - g.t()));
}

TEST(ModelOptimizer, NonFiniteGradientsChangeNothing) {
  const at::Tensor x = leaf({4}), y = leaf({2});
  ModelOptimizer optimizer({{"x", x}, {"y", y}}, {});
  const at::Tensor before = x.detach().clone();
  give(x, at::ones({4}));
  give(y, at::full({2}, NAN));
  EXPECT_THROW(optimizer.step(0.1, 1.0), Error);
  EXPECT_TRUE(at::equal(x.detach(), before));
}

TEST(ModelOptimizer, RestoredStateGoesOnAlike) {
  const at::Tensor x = leaf({3, 3}), y = x.detach().clone().set_requires_grad(true);
  ModelOptimizer first({{"x", x}}, {.weight_decay = 0.1});
  const at::Tensor g = at::randn({3, 3}), h = at::randn({3, 3});
  give(x, g);
  first.step(0.1, 1.0);
  ModelOptimizer second({{"x", y}}, {.weight_decay = 0.1});
  {
    const at::NoGradGuard no_grad;
    y.copy_(x);
  }
  second.load_state(first.state());
  for (const auto& [tensor, optimizer] : {std::pair{x, &first}, std::pair{y, &second}}) {
    give(tensor, h);
    optimizer->step(0.1, 1.0);
  }
  EXPECT_TRUE(at::equal(x, y));
  EXPECT_THROW(second.load_state({}), Error);
  EXPECT_THROW(ModelOptimizer({{"x", at::zeros({2})}}, {}), Error);
}

}  // namespace
}  // namespace focus
