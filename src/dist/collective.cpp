#include "dist/collective.h"

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <sstream>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "dist/socket_collective.h"

namespace focus {

namespace {

using std::chrono::milliseconds;

// A process of this run says who it is at once; what does not is a stranger.
constexpr auto kHelloTime = std::chrono::seconds(2);

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// What a process says first on a new connection.
struct Hello {
  uint64_t secret;
  int64_t rank;
};

/// Where a process listens, as it stands in the store; the secret keeps strangers out.
struct Entry {
  Address address;
  uint64_t secret = 0;
};

std::vector<uint8_t> to_bytes(const Entry& entry) {
  const std::string text = fmt::format("{} {} {}", entry.address.host, entry.address.port, entry.secret);
  return {text.begin(), text.end()};
}

Entry from_bytes(const std::vector<uint8_t>& bytes) {
  Entry entry;
  std::istringstream text(std::string(bytes.begin(), bytes.end()));
  text >> entry.address.host >> entry.address.port >> entry.secret;
  require(!text.fail(), "the store at the master's address holds something else under this run's name");
  return entry;
}

std::string key_of(const Launch& launch, int64_t rank) {
  return fmt::format("focus/{}/{}", launch.run, rank);
}

/// The entries of all ranks. Throws Error naming those that are still missing at the end.
std::vector<Entry> wait_for_all(c10d::Store& store, const Launch& launch, Clock::time_point deadline,
                                milliseconds timeout) {
  std::vector<std::string> keys;
  for (int64_t r = 0; r < launch.size; ++r) keys.push_back(key_of(launch, r));
  try {
    store.wait(keys, milliseconds(milliseconds_until(deadline)));
  } catch (const c10::Error&) {
    std::vector<int64_t> missing;
    for (int64_t r = 0; r < launch.size; ++r) {
      if (!store.check({keys[r]})) missing.push_back(r);
    }
    fail("rank {} of {} processes did not start within {:g} s (--dist-timeout)", fmt::join(missing, " and "),
         launch.size, std::chrono::duration<double>(timeout).count());
  }
  std::vector<Entry> entries;
  for (const std::string& key : keys) entries.push_back(from_bytes(store.get(key)));
  return entries;
}

/// Connects to the lower ranks and lets the higher ones come.
std::vector<Socket> connect_all(const Launch& launch, const std::vector<Entry>& entries, const Socket& listener,
                                Clock::time_point deadline) {
  std::vector<Socket> peers(static_cast<size_t>(launch.size));
  const uint64_t secret = entries.front().secret;
  for (int64_t r = 0; r < launch.rank; ++r) {
    Address address = entries[r].address;
    if (r == 0) address.host = launch.master_host;  // As everyone knows it.
    peers[r] = connect_to(address, deadline);
    const Hello hello{secret, launch.rank};
    require(send_all(peers[r], std::as_bytes(std::span(&hello, 1)), deadline), "rank {} closed its connection", r);
  }
  int64_t expected = launch.size - 1 - launch.rank;
  while (expected > 0) {
    Socket socket = accept_from(listener, deadline);
    if (!socket.open()) break;
    Hello hello{};
    const Clock::time_point soon = std::min(deadline, Clock::now() + kHelloTime);
    if (!receive_all(socket, std::as_writable_bytes(std::span(&hello, 1)), soon)) continue;
    const bool known = hello.secret == secret && hello.rank > launch.rank && hello.rank < launch.size;
    if (!known || peers[hello.rank].open()) continue;
    peers[hello.rank] = std::move(socket);
    --expected;
  }
  for (int64_t r = launch.rank + 1; r < launch.size; ++r) {
    require(peers[r].open(), "rank {} did not connect to rank {} in time", r, launch.rank);
  }
  return peers;
}

}  // namespace

std::unique_ptr<Collective> join_processes(const Launch& launch, milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(launch.master_port);
  options.isServer = launch.rank == 0 && !launch.store_is_open;
  options.waitWorkers = false;
  options.timeout = timeout;
  c10::intrusive_ptr<c10d::TCPStore> store;
  try {
    store = c10::make_intrusive<c10d::TCPStore>(launch.master_host, options);
  } catch (const std::exception& e) {
    fail("rank {}: no store {} {} at port {} (MASTER_ADDR, MASTER_PORT) within {:g} s: {}", launch.rank,
         options.isServer ? "can be opened on" : "answers at", launch.master_host, launch.master_port,
         std::chrono::duration<double>(timeout).count(), first_line(e.what()));
  }
  try {
    Entry own;
    own.address.host = host_for_others(launch.master_host);
    std::random_device random;
    own.secret = (static_cast<uint64_t>(random()) << 32) | random();
    // Others may know this machine by another of its addresses.
    const bool one_machine = is_loopback(launch.master_host);
    const Socket listener = listen_on(one_machine ? own.address.host : "", own.address.port);
    store->set(key_of(launch, launch.rank), to_bytes(own));
    const std::vector<Entry> entries = wait_for_all(*store, launch, deadline, timeout);
    auto joined =
        std::make_unique<SocketCollective>(launch.rank, connect_all(launch, entries, listener, deadline), timeout);
    // Rank 0 closes the store only after everyone has read it.
    any_process(joined.get(), false);
    return joined;
  } catch (const c10::Error& e) {
    fail("rank {}: the store at {} failed: {}", launch.rank, launch.master_host,
         first_line(e.what_without_backtrace()));
  }
}

bool any_process(Collective* processes, bool mine) {
  if (processes == nullptr) return mine;
  at::Tensor count = at::scalar_tensor(mine ? 1 : 0, at::TensorOptions(at::kLong));
  processes->all_reduce(count);
  return count.item<int64_t>() > 0;
}

void require_same(Collective* processes, const std::string& what, const std::string& mine) {
  if (processes == nullptr) return;
  const std::vector<std::string> texts = processes->all_gather(mine);
  for (size_t r = 1; r < texts.size(); ++r) {
    require(texts[r] == texts.front(), "rank {} differs from rank 0 in {}: {}, not {}", r, what, texts[r],
            texts.front());
  }
}

}  // namespace focus
