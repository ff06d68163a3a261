#include "train/gradient_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>

#include "dist/processes_test.h"

namespace focus {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr int64_t kBytes = 256 * 8;  // A bucket of one leaf below.

/// Leaves of a chain x_{i+1} = tanh(x_i W_i), made backward from the last to the first, one that a loss of its own
/// reaches before (as an output head's), and one that nothing reaches.
struct Chain {
  GradientSum::NamedTensors leaves;
  at::Tensor x;

  explicit Chain(int64_t rank) {
    at::manual_seed(3);
    for (const char* name : {"first", "unused", "second", "third", "head"}) {
      leaves.emplace_back(name, at::randn({16, 16}, at::kDouble).div_(4).set_requires_grad(true));
    }
    x = at::randn({5, 16}, at::kDouble) + static_cast<double>(rank);
  }
  at::Tensor leaf(int64_t i) const { return leaves[i].second; }

  void pass(int64_t step, const std::function<void()>& start) {
    for (auto& [name, leaf] : leaves) leaf.mutable_grad().reset();
    at::Tensor y = x + static_cast<double>(step);
    for (const int64_t i : {0, 2, 3}) y = at::tanh(at::matmul(y, leaf(i)));
    const at::Tensor states = y.detach().set_requires_grad(true);
    torch::autograd::backward({at::matmul(states, leaf(4)).sin().sum()});
    start();
    torch::autograd::backward({y}, {states.grad()});
  }
};

std::vector<at::Tensor> expected_sums(int64_t size, int64_t step) {
  std::vector<at::Tensor> sums(5);
  for (int64_t r = 0; r < size; ++r) {
    Chain chain(r);
    chain.pass(step, [] {});
    for (int64_t i = 0; i < 5; ++i) {
      const at::Tensor& gradient = chain.leaf(i).grad();
      if (gradient.defined()) sums[i] = sums[i].defined() ? sums[i] + gradient : gradient.clone();
    }
  }
  return sums;
}

TEST(GradientSum, AddsUpWhileThePassGoesOn) {
  constexpr int64_t kSize = 3, kSteps = 4;
  std::atomic<int64_t> first_overlap{-1}, most_overlap{-1}, buckets{0};
  std::vector<std::vector<at::Tensor>> expected;
  for (int64_t step = 0; step < kSteps; ++step) expected.push_back(expected_sums(kSize, step));
  std::vector<Chain> chains;
  for (int64_t r = 0; r < kSize; ++r) chains.emplace_back(r);
  const auto errors = run_processes(kSize, milliseconds(20'000), [&](SocketCollective& processes) {
    Chain& chain = chains[processes.rank()];
    GradientSum sum(&processes, chain.leaves, kBytes);
    for (int64_t step = 0; step < kSteps; ++step) {
      chain.pass(step, [&] { sum.start(); });
      // The last layer's gradients are there first; time for the sums of what is ready.
      std::this_thread::sleep_for(milliseconds(50));
      sum.finish();
      if (processes.rank() == 0) {
        if (step == 0) first_overlap = sum.overlapped();
        most_overlap = std::max(most_overlap.load(), sum.overlapped());
        buckets = sum.buckets();
      }
      for (int64_t i = 0; i < 5; ++i) {
        const at::Tensor& gradient = chain.leaf(i).grad();
        ASSERT_EQ(gradient.defined(), i != 1);
        if (i == 1) continue;
        EXPECT_TRUE(at::equal(gradient, expected[step][i])) << "step " << step << ", leaf " << i;
      }
    }
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"", "", ""}));
  EXPECT_EQ(first_overlap, 0);  // The order is not known yet.
  EXPECT_EQ(buckets, 5);
  EXPECT_GE(most_overlap, 4);
}

TEST(GradientSum, OneProcessIsLeftAlone) {
  Chain chain(0);
  GradientSum sum(nullptr, chain.leaves);
  chain.pass(0, [&] { sum.start(); });
  const at::Tensor gradient = chain.leaf(0).grad().clone();
  sum.finish();
  EXPECT_TRUE(at::equal(chain.leaf(0).grad(), gradient));
  EXPECT_EQ(sum.overlapped(), 0);
}

TEST(GradientSum, AFailedPassEndsAllWithItsReason) {
  std::vector<Chain> chains;
  for (int64_t r = 0; r < 2; ++r) chains.emplace_back(r);
  const auto errors = run_processes(2, milliseconds(20'000), [&](SocketCollective& processes) {
    Chain& chain = chains[processes.rank()];
    GradientSum sum(&processes, chain.leaves, kBytes);
    for (int64_t step = 0; step < 3; ++step) {
      try {
        chain.pass(step, [&] {
          sum.start();
          require(step < 2 || processes.rank() != 1, "out of memory");
        });
        sum.finish();
      } catch (const Error& e) {
        sum.cancel();
        processes.abort(fmt::format("rank {} stopped: {}", processes.rank(), e.what()));
        throw;
      }
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1 stopped: out of memory"));
  EXPECT_EQ(errors[1], "out of memory");
}

TEST(GradientSum, AGradientMadeAgainIsAnError) {
  std::vector<Chain> chains;
  for (int64_t r = 0; r < 2; ++r) chains.emplace_back(r);
  const auto errors = run_processes(2, milliseconds(20'000), [&](SocketCollective& processes) {
    Chain& chain = chains[processes.rank()];
    GradientSum sum(&processes, chain.leaves, kBytes);
    chain.pass(0, [&] { sum.start(); });
    torch::autograd::backward({chain.leaf(3).sum()});
  });
  EXPECT_THAT(errors[0], HasSubstr("third is made twice"));
  EXPECT_THAT(errors[1], HasSubstr("third is made twice"));
}

}  // namespace
}  // namespace focus
