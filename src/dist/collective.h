#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dist/launch.h"

namespace focus {

/// Sums and messages among the processes of a run. Every process must make the same calls in the same order. Each
/// exchange of a call (all_reduce and all_gather: two or three) ends within the timeout, and a second or two later
/// where it fails; what goes wrong is an Error that names the rank at fault, on every process.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  /// Replaces `tensor` by the sum over all processes, the same bits on each. Contiguous, on the CPU, float32, float64
  /// or int64. Throws Error naming a rank that is gone, says nothing for too long, stopped, or brings another size.
  virtual void all_reduce(at::Tensor& tensor) = 0;
  /// Every process's text, by rank. Throws as all_reduce.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;
  /// Tells the others, whatever they are waiting for, that this process ends, and why: their Error says so. Never
  /// throws; to be called at most once, as the last.
  virtual void abort(const std::string& reason) noexcept = 0;
};

/// Meets the other processes at the master's address (c10d's TCPStore) and joins them by sockets, one a pair,
/// on the loopback alone where the master's address is one of it, else on all addresses of this machine. Throws Error
/// within `timeout`, naming the ranks that did not come.
std::unique_ptr<Collective> join_processes(const Launch& launch, std::chrono::milliseconds timeout);

/// Whether any process says so. Null: one process.
bool any_process(Collective* processes, bool mine);

/// Throws Error on every process unless all bring the same text, naming the first rank that differs, with both texts;
/// `what` says what they are. Null: one process.
void require_same(Collective* processes, const std::string& what, const std::string& mine);

}  // namespace focus
