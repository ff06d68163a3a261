#include "train/gradient_sum.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace focus {

struct GradientSum::Hook : public torch::autograd::PostAccumulateGradHook {
  Hook(GradientSum& sum, int64_t parameter) : sum_(sum), parameter_(parameter) {}
  void operator()(const at::Tensor& /*tensor*/) override { sum_.made(parameter_); }

 private:
  GradientSum& sum_;
  int64_t parameter_;
};

GradientSum::GradientSum(Collective* processes, NamedTensors trained, int64_t bucket_bytes)
    : processes_(processes), trained_(std::move(trained)), bucket_bytes_(bucket_bytes) {
  if (processes_ == nullptr) return;
  made_.resize(trained_.size());
  for (int64_t i = 0; i < std::ssize(trained_); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(trained_[i].second, std::make_unique<Hook>(*this, i));
  }
  std::vector<int64_t> order(trained_.size());
  std::iota(order.begin(), order.end(), 0);
  plan_buckets(order, 0);
  worker_ = std::thread([this] { work(); });
}

GradientSum::~GradientSum() {
  if (processes_ == nullptr) return;
  cancel();
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  changed_.notify_all();
  worker_.join();
  for (auto& [name, tensor] : trained_) torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
}

// `order` holds every parameter, the last `made` of them those whose gradients a pass makes after start().
void GradientSum::plan_buckets(const std::vector<int64_t>& order, int64_t made) {
  buckets_.clear();
  bucket_of_.assign(trained_.size(), 0);
  int64_t bytes = 0;
  const int64_t first_made = std::ssize(order) - made;
  for (int64_t i = 0; i < std::ssize(order); ++i) {
    if (buckets_.empty() || bytes >= bucket_bytes_ || i == first_made) {
      buckets_.emplace_back();
      bytes = 0;
    }
    bytes += static_cast<int64_t>(trained_[order[i]].second.nbytes());
    bucket_of_[order[i]] = std::ssize(buckets_) - 1;
    buckets_.back().push_back(order[i]);
  }
  missing_.assign(buckets_.size(), 0);
}

void GradientSum::start() {
  if (processes_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  active_ = true;
  ready_ = summed_ = overlapped_ = 0;
  std::fill(made_.begin(), made_.end(), false);
  order_known_ = !order_.empty();
  std::fill(missing_.begin(), missing_.end(), 0);
  for (const int64_t parameter : order_) ++missing_[bucket_of_[parameter]];
  // Those of the head alone, made before start(), come first and wait for nothing.
  while (order_known_ && ready_ < buckets() && missing_[ready_] == 0) ++ready_;
  changed_.notify_all();
}

void GradientSum::made(int64_t parameter) {
  const std::lock_guard lock(mutex_);
  if (!active_) return;
  const std::string& name = trained_[parameter].first;
  if (!order_known_) {
    require(!made_[parameter], "the gradient of {} is made twice in the last pass of a step", name);
    order_.push_back(parameter);
  } else {
    int64_t& missing = missing_[bucket_of_[parameter]];
    require(!made_[parameter] && missing > 0, "the gradient of {} is made after it was summed", name);
    --missing;
    while (ready_ < buckets() && missing_[ready_] == 0) ++ready_;
    changed_.notify_all();
  }
  made_[parameter] = true;
}

void GradientSum::finish() {
  if (processes_ == nullptr) return;
  std::unique_lock lock(mutex_);
  require(active_, "finish() without start()");
  overlapped_ = summed_ + (summing_ ? 1 : 0);
  ready_ = buckets();
  changed_.notify_all();
  changed_.wait(lock, [&] { return error_ != nullptr || (summed_ == ready_ && !summing_); });
  active_ = false;
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  lock.unlock();
  if (!order_known_) learn_order();
}

void GradientSum::learn_order() {
  const size_t digest = std::hash<std::string>{}(fmt::format("{}", fmt::join(order_, " ")));
  require_same(processes_, "the order in which gradients are made", fmt::format("{:x}", digest));
  if (order_.empty()) return;
  std::vector<int64_t> order;
  for (int64_t i = 0; i < std::ssize(trained_); ++i) {
    if (!made_[i]) order.push_back(i);
  }
  order.insert(order.end(), order_.begin(), order_.end());
  const std::lock_guard lock(mutex_);
  plan_buckets(order, std::ssize(order_));
}

void GradientSum::cancel() noexcept {
  if (processes_ == nullptr) return;
  std::unique_lock lock(mutex_);
  ready_ = summed_;
  changed_.wait(lock, [&] { return !summing_; });
  active_ = false;
  error_ = nullptr;
  if (!order_known_) order_.clear();
}

void GradientSum::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return end_ || (error_ == nullptr && summed_ < ready_); });
    if (end_) return;
    const std::vector<int64_t> bucket = buckets_[summed_];
    summing_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      sum(bucket);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    summing_ = false;
    error_ = error;
    if (error == nullptr) ++summed_;
    changed_.notify_all();
  }
}

void GradientSum::sum(const std::vector<int64_t>& bucket) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients, parts;
  for (const int64_t parameter : bucket) {
    const at::Tensor& gradient = trained_[parameter].second.grad();
    if (!gradient.defined()) continue;
    gradients.push_back(gradient);
    parts.push_back(gradient.reshape(-1));
  }
  if (gradients.empty()) return;
  at::Tensor flat = at::cat(parts);
  processes_->all_reduce(flat);
  int64_t begin = 0;
  for (at::Tensor& gradient : gradients) {
    gradient.copy_(flat.slice(0, begin, begin + gradient.numel()).view(gradient.sizes()));
    begin += gradient.numel();
  }
}

}  // namespace focus
