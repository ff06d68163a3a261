#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace focus {
namespace {

TEST(LrFactor, WarmsUpAndComesDown) {
  EXPECT_DOUBLE_EQ(lr_factor(LrScheduler::kConstant, 0, 10, 0), 1);
  EXPECT_DOUBLE_EQ(lr_factor(LrScheduler::kConstant, 0, 10, 4), 0.25);
  EXPECT_DOUBLE_EQ(lr_factor(LrScheduler::kCosine, 3, 100, 4), 1);
  EXPECT_NEAR(lr_factor(LrScheduler::kCosine, 52, 100, 4), 0.5, 1e-12);
  EXPECT_LT(lr_factor(LrScheduler::kCosine, 99, 100, 4), 0.01);
  EXPECT_DOUBLE_EQ(lr_factor(LrScheduler::kLinear, 40, 100, 4), 1);
  EXPECT_DOUBLE_EQ(lr_factor(LrScheduler::kWsd, 79, 100, 4), 1);
  EXPECT_DOUBLE_EQ(lr_factor(LrScheduler::kWsd, 90, 100, 4), 0.5);
  EXPECT_NEAR(lr_factor(LrScheduler::kLinear, 70, 100, 4), 0.5, 1e-12);
}

TEST(Adam, MovesAgainstTheGradientByTheLearningRate) {
  at::Tensor x = at::tensor({1.0F, -2.0F}).set_requires_grad(true);
  Adam adam({{"x", x}}, 0.9, 0.98);
  (x * x).sum().backward();
  const double norm = adam.step(0.1, 1.0);
  EXPECT_NEAR(norm, std::sqrt(4.0 + 16.0), 1e-5);
  EXPECT_NEAR(x[0].item<float>(), 0.9, 1e-4);  // The first step of Adam has the size of the learning rate.
  EXPECT_NEAR(x[1].item<float>(), -1.9, 1e-4);
}

TEST(Adam, AParameterMayHaveARateOfItsOwn) {
  at::Tensor x = at::ones({1}).set_requires_grad(true), y = at::ones({1}).set_requires_grad(true);
  Adam adam({{"x", x}, {"y", y, 0.3}}, 0.9, 0.98);
  (x + y).sum().backward();
  adam.step(0.1, 100);
  EXPECT_NEAR(x.item<float>(), 0.9, 1e-5);
  EXPECT_NEAR(y.item<float>(), 0.97, 1e-5);
}

TEST(Adam, ASavedStateContinuesBitForBit) {
  const auto updates = [](at::Tensor& x, Adam& adam, int n) {
    for (int i = 0; i < n; ++i) {
      (x * x * x.sum()).sum().backward();
      adam.step(0.01, 1.0);
    }
  };
  at::Tensor whole = at::tensor({1.0F, -2.0F, 0.5F}).set_requires_grad(true);
  Adam adam({{"x", whole}}, 0.9, 0.98);
  updates(whole, adam, 5);
  at::Tensor resumed = whole.detach().clone().set_requires_grad(true);
  Adam second({{"x", resumed}}, 0.9, 0.98);
  second.load_state(adam.state());
  updates(whole, adam, 5);
  updates(resumed, second, 5);
  EXPECT_TRUE(at::equal(whole, resumed));
}

TEST(Adam, NamesWhatASavedStateLacks) {
  at::Tensor x = at::zeros({2}).set_requires_grad(true);
  Adam adam({{"x", x}}, 0.9, 0.98);
  EXPECT_THROW(adam.load_state({{"x.exp_avg", at::zeros({2})}}), Error);
  EXPECT_THROW(adam.load_state({{"x.exp_avg", at::zeros({3})}}), Error);
  EXPECT_THROW(Adam({{"y", at::zeros({2})}}, 0.9, 0.98), Error);
}

}  // namespace
}  // namespace focus
