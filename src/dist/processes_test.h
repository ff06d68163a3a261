#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "dist/socket_collective.h"

namespace focus {

/// Processes as threads, joined by socket pairs. Gives the Error of each, "" for none.
inline std::vector<std::string> run_processes(int64_t size, std::chrono::milliseconds timeout,
                                              const std::function<void(SocketCollective&)>& work) {
  std::vector<std::vector<Socket>> peers(size);
  for (auto& row : peers) row.resize(size);
  for (int64_t a = 0; a < size; ++a) {
    for (int64_t b = a + 1; b < size; ++b) {
      std::array<int, 2> pair{};
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair.data()), 0);
      peers[a][b] = Socket(pair[0]);
      peers[b][a] = Socket(pair[1]);
    }
  }
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        SocketCollective processes(r, std::move(peers[r]), timeout);
        work(processes);
      } catch (const Error& e) {
        errors[r] = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace focus
