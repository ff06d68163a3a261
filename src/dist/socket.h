#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace focus {

using Clock = std::chrono::steady_clock;

/// A socket that is closed with its owner.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  int descriptor() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }
  void close();

 private:
  int descriptor_ = -1;
};

/// Where a process can be reached.
struct Address {
  std::string host;
  int64_t port = 0;
};

/// The address of this machine that packets to `host` leave from. Throws Error when the name cannot be resolved.
std::string local_host_towards(const std::string& host);

/// Whether this is an address of the loopback, or its name localhost. Not by resolving: machines may give their own
/// name such an address.
bool is_loopback(const std::string& host);

/// The address that others reach this machine at, which meet at `master`: local_host_towards(master), but where that is
/// a loopback address and `master` is none by itself, the first other address of this machine, if it has one.
std::string host_for_others(const std::string& master);

/// Listens on `host` ("": on all addresses of this machine) at a free port, which `port` is set to. Throws Error.
Socket listen_on(const std::string& host, int64_t& port);

/// Connects to the first of the host's addresses that answers, trying again until `deadline`. Throws Error with the
/// system's reason.
Socket connect_to(const Address& address, Clock::time_point deadline);

/// The next connection; a closed socket when none came until `deadline`.
Socket accept_from(const Socket& listener, Clock::time_point deadline);

/// Sends or fills all bytes until `deadline`; false when the other side closed or time ran out.
bool send_all(const Socket& socket, std::span<const std::byte> bytes, Clock::time_point deadline);
bool receive_all(const Socket& socket, std::span<std::byte> bytes, Clock::time_point deadline);

/// Milliseconds until `deadline`, at least 0, as poll() wants them.
int milliseconds_until(Clock::time_point deadline);

}  // namespace focus
