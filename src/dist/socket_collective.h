#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dist/collective.h"
#include "dist/socket.h"

namespace focus {

/// A Collective over one socket for each pair of processes. A large sum is shared out: every process adds up one part,
/// which the others send to it, and sends the result back, so that each moves about twice the tensor whatever their
/// number. Whoever ends early says why before it closes; a connection that ends without a word is a dead process.
class SocketCollective : public Collective {
 public:
  /// `peers` by rank, this process's own entry closed. Throws Error for a wrong number of them.
  SocketCollective(int64_t rank, std::vector<Socket> peers, std::chrono::milliseconds timeout);

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return std::ssize(peers_); }
  void all_reduce(at::Tensor& tensor) override;
  std::vector<std::string> all_gather(const std::string& text) override;
  void abort(const std::string& reason) noexcept override;

 private:
  using Bytes = std::span<const std::byte>;
  using Space = std::span<std::byte>;
  struct Transfer;

  /// Sends out[p] to each other process p and fills in[p] from it, all at the same time.
  void exchange(const std::vector<Bytes>& out, const std::vector<Space>& in);
  /// Moves what can be moved without waiting.
  void receive_some(int64_t peer, Transfer& transfer);
  void send_some(int64_t peer, Transfer& transfer);
  /// Why a process that takes nothing any more has ended, as far as it said so.
  std::string last_words(int64_t peer);
  [[noreturn]] void fail_all(const std::string& reason);

  int64_t rank_;
  std::vector<Socket> peers_;
  std::chrono::milliseconds timeout_;
  uint64_t sequence_ = 0;  // Of the exchange, the same on all processes.
  bool ended_ = false;
  std::vector<Transfer>* running_ = nullptr;  // The exchange in progress, by rank.
};

}  // namespace focus
