#pragma once

#include <ATen/ATen.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/collective.h"

namespace focus {

/// Adds gradients up over all processes in buckets, each on a thread of its own as soon as the backward pass has made
/// the bucket's last gradient, while the pass goes on (S. Li et al., "PyTorch Distributed: experiences on accelerating
/// data parallel training", 2020, section 3.2). The order in which a pass makes gradients is seen in the first step,
/// which adds them up in its end.
class GradientSum {
 public:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  /// `trained` are leaves; they must be the same ones everywhere. Null processes: nothing is ever done. A bucket is
  /// closed when it has `bucket_bytes`.
  GradientSum(Collective* processes, NamedTensors trained, int64_t bucket_bytes = int64_t{32} << 20);
  /// Drops what was not yet begun.
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  /// To be called before the last backward passes of a step: none of them may add to a gradient twice. Until finish()
  /// the processes belong to this object.
  void start();
  /// To be called after them: adds up what is left and waits. Every gradient is then the sum over all processes, the
  /// same bits on each; tensors without a gradient are left out. Throws what went wrong among the processes, and Error
  /// if they make gradients in different orders.
  void finish();
  /// Ends a step that failed: waits for the sum that is under way, if any, and begins no other.
  void cancel() noexcept;

  /// Buckets of the last step whose sum began before finish().
  int64_t overlapped() const { return overlapped_; }
  int64_t buckets() const { return std::ssize(buckets_); }

 private:
  struct Hook;

  void made(int64_t parameter);
  void learn_order();
  void plan_buckets(const std::vector<int64_t>& order, int64_t made);
  /// Sums buckets from the first that is not summed yet, as far as they may be.
  void work();
  void sum(const std::vector<int64_t>& bucket);

  Collective* processes_;
  NamedTensors trained_;
  int64_t bucket_bytes_;
  bool order_known_ = false;
  std::vector<int64_t> order_;                 // Of the first step's gradients, as they were made.
  std::vector<std::vector<int64_t>> buckets_;  // Parameters, in the order of sums.
  std::vector<int64_t> bucket_of_;             // By parameter.

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> missing_;  // By bucket: gradients that the step has still to make.
  std::vector<bool> made_;        // By parameter, in this step.
  int64_t ready_ = 0;             // Buckets that may be summed,
  int64_t summed_ = 0;            // that are.
  int64_t overlapped_ = 0;
  bool active_ = false, summing_ = false, end_ = false;
  std::exception_ptr error_;
  std::thread worker_;
};

}  // namespace focus
