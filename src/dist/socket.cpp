#include "dist/socket.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace focus {

namespace {

constexpr auto kRetryDelay = std::chrono::milliseconds(100);
// For one of several addresses: packets to another may vanish without a word.
constexpr auto kOneAddress = std::chrono::seconds(5);

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Of the host; "": all of this machine, IPv6 first, to listen on.
AddressList resolve(const std::string& host, int64_t port, int type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  if (host.empty()) hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  require(error == 0, "the name {} cannot be resolved: {}", host, gai_strerror(error));
  return {found, &freeaddrinfo};
}

Socket open_socket(const addrinfo& address) {
  return Socket(socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
}

/// Small messages leave at once, and no call blocks.
void prepare(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(socket.descriptor(), F_SETFL, fcntl(socket.descriptor(), F_GETFL) | O_NONBLOCK);
}

bool wait_for(const Socket& socket, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd one{socket.descriptor(), events, 0};
    const int ready = poll(&one, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

/// "10.0.0.7"; "" for none.
std::string numeric_host(const sockaddr* address, socklen_t size) {
  char name[NI_MAXHOST];
  return getnameinfo(address, size, name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0 ? name : "";
}

/// An address of this machine that is none of the loopback, of IPv4 before IPv6; "" when it has none.
std::string first_outer_host() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
      const bool usable = at->ifa_addr != nullptr && at->ifa_addr->sa_family == family &&
                          (at->ifa_flags & (IFF_UP | IFF_LOOPBACK)) == IFF_UP;
      if (!usable) continue;
      const std::string host =
          numeric_host(at->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      if (!host.empty() && !host.starts_with("fe80:")) return host;  // Those have a meaning on their own link only.
    }
  }
  return "";
}

/// An open socket that listens, or a closed one.
Socket listen_at(const addrinfo& address) {
  Socket socket = open_socket(address);
  const int off = 0;  // IPv4 comes in too.
  if (socket.open() && address.ai_family == AF_INET6) {
    setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  const bool listens = socket.open() && bind(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0 &&
                       listen(socket.descriptor(), SOMAXCONN) == 0;
  return listens ? std::move(socket) : Socket();
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Socket::~Socket() {
  close();
}

Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
}

std::string local_host_towards(const std::string& host) {
  constexpr int64_t kAnyPort = 9;  // Nothing is sent: connecting a datagram socket only chooses a route.
  const AddressList addresses = resolve(host, kAnyPort, SOCK_DGRAM);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const Socket socket = open_socket(*a);
    if (!socket.open() || connect(socket.descriptor(), a->ai_addr, a->ai_addrlen) != 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &size) != 0) continue;
    std::string name = numeric_host(reinterpret_cast<sockaddr*>(&own), size);
    if (!name.empty()) return name;
  }
  fail("no route from here to {}", host);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string host_for_others(const std::string& master) {
  std::string own = local_host_towards(master);
  if (!is_loopback(own) || is_loopback(master)) return own;
  const std::string outer = first_outer_host();
  return outer.empty() ? own : outer;
}

Socket listen_on(const std::string& host, int64_t& port) {
  const AddressList addresses = resolve(host, 0, SOCK_STREAM);
  std::vector<const addrinfo*> order;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) order.push_back(a);
  // The one for all addresses of IPv6 takes IPv4 as well.
  if (host.empty()) std::stable_partition(order.begin(), order.end(), [](auto a) { return a->ai_family == AF_INET6; });
  int error = 0;
  for (const addrinfo* address : order) {
    Socket socket = listen_at(*address);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (!socket.open() || getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
      error = errno;
      continue;
    }
    port = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(own).sin_port);
    prepare(socket);
    return socket;
  }
  fail("cannot listen on {}: {}", host.empty() ? "this machine" : host, std::strerror(error));
}

Socket connect_to(const Address& address, Clock::time_point deadline) {
  const AddressList addresses = resolve(address.host, address.port, SOCK_STREAM);
  const bool several = addresses->ai_next != nullptr;
  int error = 0;
  do {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      Socket socket = open_socket(*a);
      error = errno;
      if (!socket.open()) continue;
      prepare(socket);
      error = connect(socket.descriptor(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
      const Clock::time_point until = several ? std::min(deadline, Clock::now() + kOneAddress) : deadline;
      if (error == EINPROGRESS && wait_for(socket, POLLOUT, until)) {
        socklen_t size = sizeof error;
        getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
      if (error == 0) return socket;
    }
    std::this_thread::sleep_for(kRetryDelay);
  } while (Clock::now() < deadline);
  fail("cannot connect to {} at port {}: {}", address.host, address.port, std::strerror(error));
}

Socket accept_from(const Socket& listener, Clock::time_point deadline) {
  while (wait_for(listener, POLLIN, deadline)) {
    Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.open()) continue;  // The other side has gone again.
    prepare(socket);
    return socket;
  }
  return Socket();
}

bool send_all(const Socket& socket, std::span<const std::byte> bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (!would_block() || !wait_for(socket, POLLOUT, deadline)) {
      return false;
    }
  }
  return true;
}

bool receive_all(const Socket& socket, std::span<std::byte> bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t got = recv(socket.descriptor(), bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got == 0 || !would_block() || !wait_for(socket, POLLIN, deadline)) {
      return false;
    }
  }
  return true;
}

}  // namespace focus
