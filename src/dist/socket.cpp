#include "dist/socket.h"

#include <fcntl.h>
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

#include "base/error.h"

namespace focus {

namespace {

constexpr auto kRetryDelay = std::chrono::milliseconds(100);

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const std::string& host, int64_t port, int type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
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
    char name[NI_MAXHOST];
    if (getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0) {
      return name;
    }
  }
  fail("no route from here to {}", host);
}

Socket listen_on(const std::string& host, int64_t& port) {
  const AddressList addresses = resolve(host, 0, SOCK_STREAM);
  Socket socket = open_socket(*addresses);
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  const bool listens = socket.open() && bind(socket.descriptor(), addresses->ai_addr, addresses->ai_addrlen) == 0 &&
                       listen(socket.descriptor(), SOMAXCONN) == 0 &&
                       getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&own), &size) == 0;
  require(listens, "cannot listen on {}: {}", host, std::strerror(errno));
  port = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
  prepare(socket);
  return socket;
}

Socket connect_to(const Address& address, Clock::time_point deadline) {
  const AddressList addresses = resolve(address.host, address.port, SOCK_STREAM);
  int error = 0;
  do {
    Socket socket = open_socket(*addresses);
    require(socket.open(), "no socket can be opened: {}", std::strerror(errno));
    prepare(socket);
    error = connect(socket.descriptor(), addresses->ai_addr, addresses->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS && wait_for(socket, POLLOUT, deadline)) {
      socklen_t size = sizeof error;
      getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return socket;
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
