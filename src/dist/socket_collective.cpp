#include "dist/socket_collective.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace focus {

namespace {

constexpr uint32_t kMagic = 0x46435553, kData = 1, kAbort = 2;
constexpr size_t kLongestReason = 4096;
// Sums up to this size are sent whole: one round instead of two.
constexpr int64_t kSmallBytes = 16384;
constexpr auto kGrace = std::chrono::seconds(1);

struct Header {
  uint32_t magic, kind;
  uint64_t sequence, bytes;
};

std::span<const std::byte> bytes_of(const Header& header) {
  return std::as_bytes(std::span(&header, 1));
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

bool try_again() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

/// Both directions of an exchange with one process.
struct SocketCollective::Transfer {
  Header out_header{}, in_header{};
  Bytes out;
  Space in;
  size_t sent = 0, received = 0;  // Header included.
  bool send_broken = false;       // What it said before it closed is still to be read.

  bool sends() const { return !send_broken && sent < sizeof(Header) + out.size(); }
  bool receives() const { return received < sizeof(Header) + in.size(); }
};

SocketCollective::SocketCollective(int64_t rank, std::vector<Socket> peers, std::chrono::milliseconds timeout)
    : rank_(rank), peers_(std::move(peers)), timeout_(timeout) {
  for (int64_t p = 0; p < size(); ++p) {
    require(peers_[p].open() == (p != rank), "process {} has no connection to {} as it should", rank, p);
  }
}

void SocketCollective::receive_some(int64_t peer, Transfer& t) {
  for (;;) {
    const bool in_header = t.received < sizeof(Header);
    Space space = t.in.subspan(in_header ? 0 : t.received - sizeof(Header));
    if (in_header) space = std::as_writable_bytes(std::span(&t.in_header, 1)).subspan(t.received);
    const ssize_t got = recv(peers_[peer].descriptor(), space.data(), space.size(), 0);
    if (got < 0 && try_again()) return;
    if (got <= 0) {
      fail_all(fmt::format("rank {} is gone: its process has ended or its machine cannot be reached", peer));
    }
    t.received += static_cast<size_t>(got);
    if (in_header && t.received == sizeof(Header)) {
      const Header& header = t.in_header;
      if (header.magic == kMagic && header.kind == kAbort && header.bytes <= kLongestReason) {
        std::string reason(header.bytes, ' ');
        const bool whole = receive_all(peers_[peer], std::as_writable_bytes(std::span(reason)), Clock::now() + kGrace);
        fail_all(whole ? reason : fmt::format("rank {} stopped", peer));
      }
      if (header.magic != kMagic || header.sequence != sequence_ || header.bytes != t.in.size()) {
        fail_all(
            fmt::format("rank {} sends {} bytes in exchange {}, rank {} expects {} in exchange {}: do all processes "
                        "run the same command?",
                        peer, header.bytes, header.sequence, rank_, t.in.size(), sequence_));
      }
    }
    if (!t.receives()) return;
  }
}

void SocketCollective::send_some(int64_t peer, Transfer& t) {
  while (t.sends()) {
    Bytes bytes =
        t.sent < sizeof(Header) ? bytes_of(t.out_header).subspan(t.sent) : t.out.subspan(t.sent - sizeof(Header));
    const ssize_t sent = send(peers_[peer].descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && try_again()) return;
    if (sent < 0) {
      t.send_broken = true;
      return;
    }
    t.sent += static_cast<size_t>(sent);
  }
}

void SocketCollective::exchange(const std::vector<Bytes>& out, const std::vector<Space>& in) {
  require(!ended_, "the processes have parted already");
  const Clock::time_point deadline = Clock::now() + timeout_;
  ++sequence_;
  std::vector<Transfer> transfers(peers_.size());
  for (int64_t p = 0; p < size(); ++p) {
    transfers[p].out = out[p];
    transfers[p].in = in[p];
    transfers[p].out_header = {kMagic, kData, sequence_, out[p].size()};
  }
  running_ = &transfers;
  for (;;) {
    std::vector<pollfd> waiting;
    std::vector<int64_t> ranks, silent;
    for (int64_t p = 0; p < size(); ++p) {
      if (p == rank_) continue;
      const Transfer& t = transfers[p];
      const short events = static_cast<short>((t.receives() ? POLLIN : 0) | (t.sends() ? POLLOUT : 0));
      if (events == 0) continue;
      waiting.push_back({peers_[p].descriptor(), events, 0});
      ranks.push_back(p);
      if (t.receives()) silent.push_back(p);
    }
    if (waiting.empty()) break;
    const int ready = poll(waiting.data(), waiting.size(), milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      if (silent.empty()) silent = std::move(ranks);
      fail_all(fmt::format("rank {} did not answer within {:g} s (--dist-timeout)", fmt::join(silent, " and "),
                           std::chrono::duration<double>(timeout_).count()));
    }
    for (size_t i = 0; i < waiting.size(); ++i) {
      Transfer& t = transfers[ranks[i]];
      if (t.receives() && (waiting[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) receive_some(ranks[i], t);
      if ((waiting[i].revents & (POLLOUT | POLLHUP | POLLERR)) != 0) send_some(ranks[i], t);
    }
  }
  for (int64_t p = 0; p < size(); ++p) {
    if (transfers[p].send_broken) fail_all(last_words(p));
  }
  running_ = nullptr;
}

std::string SocketCollective::last_words(int64_t peer) {
  const Clock::time_point deadline = Clock::now() + kGrace;
  Header header{};
  if (receive_all(peers_[peer], std::as_writable_bytes(std::span(&header, 1)), deadline) && header.magic == kMagic &&
      header.kind == kAbort && header.bytes <= kLongestReason) {
    std::string reason(header.bytes, ' ');
    if (receive_all(peers_[peer], std::as_writable_bytes(std::span(reason)), deadline)) return reason;
  }
  return fmt::format("rank {} is gone: its process has ended or its machine cannot be reached", peer);
}

void SocketCollective::fail_all(const std::string& reason) {
  abort(reason);
  throw Error(reason);
}

void SocketCollective::abort(const std::string& reason) noexcept {
  if (ended_) return;
  ended_ = true;
  try {
    const std::string text = reason.substr(0, kLongestReason);
    const Header header{kMagic, kAbort, sequence_, text.size()};
    const Clock::time_point deadline = Clock::now() + kGrace;
    for (int64_t p = 0; p < size(); ++p) {
      if (p == rank_) continue;
      // A message that has begun must end before another can.
      if (running_ != nullptr && (*running_)[p].sent > 0 && (*running_)[p].sends()) {
        const Transfer& t = (*running_)[p];
        const size_t in_header = std::min(t.sent, sizeof(Header));
        if (!send_all(peers_[p], bytes_of(t.out_header).subspan(in_header), deadline)) continue;
        if (!send_all(peers_[p], t.out.subspan(t.sent - in_header), deadline)) continue;
      }
      send_all(peers_[p], bytes_of(header), deadline);
      send_all(peers_[p], std::as_bytes(std::span(text)), deadline);
      shutdown(peers_[p].descriptor(), SHUT_WR);
    }
    // A connection closed with unread bytes is reset, and a reset can overtake what was said.
    std::array<std::byte, 4096> rest;
    for (int64_t p = 0; p < size(); ++p) {
      while (p != rank_ && receive_all(peers_[p], rest, deadline)) {
      }
    }
  } catch (const std::exception&) {
    // The others will find the connection closed.
  }
  running_ = nullptr;
}

void SocketCollective::all_reduce(at::Tensor& tensor) {
  require(tensor.is_contiguous() && tensor.is_cpu() &&
              (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble ||
               tensor.scalar_type() == at::kLong),
          "all_reduce: a contiguous float32, float64 or int64 tensor on the CPU is expected");
  const at::NoGradGuard no_grad;
  const int64_t n = tensor.numel();
  const bool whole = static_cast<int64_t>(tensor.nbytes()) <= kSmallBytes;
  const at::Tensor flat = tensor.view({n});
  const auto begin = [&](int64_t r) { return n * r / size(); };
  const auto part = [&](int64_t r) { return whole ? flat : flat.slice(0, begin(r), begin(r + 1)); };

  // Everyone's share of the part that this process adds up.
  const at::Tensor own = part(rank_);
  std::vector<at::Tensor> shares(peers_.size());
  std::vector<Bytes> out(peers_.size());
  std::vector<Space> in(peers_.size());
  for (int64_t p = 0; p < size(); ++p) {
    if (p == rank_) {
      shares[p] = own.clone();
      continue;
    }
    shares[p] = at::empty_like(own);
    out[p] = bytes_of(part(p));
    in[p] = bytes_of(shares[p]);
  }
  exchange(out, in);
  own.copy_(shares[0]);
  for (int64_t p = 1; p < size(); ++p) own.add_(shares[p]);
  if (whole) return;
  for (int64_t p = 0; p < size(); ++p) {
    if (p == rank_) continue;
    out[p] = bytes_of(own);
    in[p] = bytes_of(part(p));
  }
  exchange(out, in);
}

std::vector<std::string> SocketCollective::all_gather(const std::string& text) {
  at::Tensor lengths = at::zeros({size()}, at::kLong);
  lengths[rank_].fill_(static_cast<int64_t>(text.size()));
  all_reduce(lengths);
  std::vector<std::string> texts(peers_.size());
  std::vector<Bytes> out(peers_.size());
  std::vector<Space> in(peers_.size());
  for (int64_t p = 0; p < size(); ++p) {
    if (p == rank_) {
      texts[p] = text;
      continue;
    }
    texts[p].resize(static_cast<size_t>(lengths[p].item<int64_t>()));
    out[p] = std::as_bytes(std::span(text));
    in[p] = std::as_writable_bytes(std::span(texts[p]));
  }
  exchange(out, in);
  return texts;
}

}  // namespace focus
