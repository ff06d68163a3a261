#include "dist/collective.h"

#include <gtest/gtest.h>
#include <netdb.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/error.h"
#include "dist/processes_test.h"

namespace focus {
namespace {

using std::chrono::milliseconds;

const std::vector<std::string> kNoErrors3 = {"", "", ""};

TEST(Collective, SumsOfAnySizeAreTheSameOnAll) {
  for (const int64_t n : {0, 1, 2, 5, 1000, 300'001}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kLong}) {
      std::vector<at::Tensor> got(3);
      const auto value = [&](int64_t rank) { return ((at::arange(n) * 7 + rank * 3) % 11).to(dtype); };
      EXPECT_EQ(run_processes(3, milliseconds(20'000),
                              [&](SocketCollective& processes) {
                                got[processes.rank()] = value(processes.rank());
                                processes.all_reduce(got[processes.rank()]);
                              }),
                kNoErrors3);
      for (const at::Tensor& tensor : got) EXPECT_TRUE(at::equal(tensor, value(0) + value(1) + value(2))) << n;
    }
  }
}

TEST(Collective, EveryTextArrives) {
  EXPECT_EQ(run_processes(3, milliseconds(20'000),
                          [](SocketCollective& processes) {
                            const std::vector<std::string> texts = {"", "one", std::string(100'000, 'x')};
                            EXPECT_EQ(processes.all_gather(texts[processes.rank()]), texts);
                            EXPECT_TRUE(any_process(&processes, processes.rank() == 2));
                            EXPECT_FALSE(any_process(&processes, false));
                          }),
            kNoErrors3);
}

TEST(Collective, ADeadProcessIsNamedByAll) {
  const auto errors = run_processes(3, milliseconds(20'000), [](SocketCollective& processes) {
    if (processes.rank() == 1) return;
    at::Tensor sum = at::ones({200'000});
    processes.all_reduce(sum);
  });
  EXPECT_NE(errors[0].find("rank 1 is gone"), std::string::npos) << errors[0];
  EXPECT_EQ(errors[1], "");
  EXPECT_NE(errors[2].find("rank 1 is gone"), std::string::npos) << errors[2];
}

TEST(Collective, ASilentProcessIsNamedWithinTheTimeout) {
  const auto start = Clock::now();
  const auto errors = run_processes(3, milliseconds(300), [](SocketCollective& processes) {
    if (processes.rank() == 2) std::this_thread::sleep_for(milliseconds(1500));
    any_process(&processes, false);
  });
  EXPECT_LT(Clock::now() - start, milliseconds(8000));
  for (int r = 0; r < 2; ++r) EXPECT_NE(errors[r].find("rank 2 did not answer"), std::string::npos) << errors[r];
  EXPECT_NE(errors[2], "");
}

TEST(Collective, TheReasonOfOneReachesAll) {
  const auto errors = run_processes(3, milliseconds(20'000), [](SocketCollective& processes) {
    if (processes.rank() == 1) {
      processes.abort("rank 1: the disk is full");
      fail("the disk is full");
    }
    at::Tensor sum = at::ones({200'000});
    processes.all_reduce(sum);
  });
  EXPECT_EQ(errors,
            (std::vector<std::string>{"rank 1: the disk is full", "the disk is full", "rank 1: the disk is full"}));
}

TEST(Collective, DifferentSizesAndTextsAreErrorsWithTheRank) {
  const auto sizes = run_processes(2, milliseconds(20'000), [](SocketCollective& processes) {
    at::Tensor sum = at::ones({10 + processes.rank()});
    processes.all_reduce(sum);
  });
  EXPECT_TRUE(sizes[0].find("rank 1 sends 44 bytes") != std::string::npos ||
              sizes[0].find("rank 0 sends 40 bytes") != std::string::npos)
      << sizes[0];
  EXPECT_NE(sizes[1], "");
  const auto texts = run_processes(3, milliseconds(20'000), [](SocketCollective& processes) {
    require_same(&processes, "tokens", processes.rank() == 2 ? "5" : "7");
  });
  for (const std::string& error : texts) EXPECT_EQ(error, "rank 2 differs from rank 0 in tokens: 5, not 7");
}

TEST(Collective, ProcessesMeetAtThePort) {
  int64_t port = 0;
  { const Socket free = listen_on("127.0.0.1", port); }
  std::vector<std::thread> threads;
  std::vector<double> sums(3);
  for (int64_t r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      const Launch launch{.rank = r, .size = 3, .master_port = port};
      const auto processes = join_processes(launch, milliseconds(20'000));
      at::Tensor sum = at::full({3}, static_cast<double>(r + 1), at::kDouble);
      processes->all_reduce(sum);
      sums[r] = sum[2].item<double>();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, (std::vector<double>{6, 6, 6}));
}

/// A name of this machine, which may stand for a loopback address.
std::string own_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

TEST(Collective, AMachineMayBeNamedAfterItsLoopback) {
  EXPECT_TRUE(is_loopback("127.0.1.1") && is_loopback("localhost") && is_loopback("::1"));
  EXPECT_FALSE(is_loopback("node1") || is_loopback("10.127.0.1"));
  EXPECT_TRUE(is_loopback(host_for_others("127.0.0.1")));  // Meant by itself.
  const std::string host = host_for_others(own_name());
  int64_t port = 0;
  const Socket listener = listen_on("", port);
  for (const std::string& name : {host, std::string("127.0.0.1"), own_name()}) {
    EXPECT_TRUE(connect_to({name, port}, Clock::now() + milliseconds(5000)).open()) << name;
  }
  EXPECT_TRUE(accept_from(listener, Clock::now() + milliseconds(5000)).open());
}

TEST(Collective, EveryAddressOfANameIsTried) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    int64_t port = 0;
    Socket listener;
    try {
      listener = listen_on(address, port);
    } catch (const Error&) {
      continue;  // A machine without IPv6.
    }
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    ASSERT_EQ(getaddrinfo("localhost", nullptr, &hints, &found), 0);
    bool named = false;  // localhost may stand for one of the two only.
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      named = named || a->ai_family == (std::string(address) == "::1" ? AF_INET6 : AF_INET);
    }
    freeaddrinfo(found);
    if (!named) continue;
    EXPECT_TRUE(connect_to({"localhost", port}, Clock::now() + milliseconds(5000)).open()) << address;
  }
}

TEST(Collective, ASilentStrangerDoesNotHoldUpTheOthers) {
  int64_t port = 0;
  { const Socket free = listen_on("127.0.0.1", port); }
  std::vector<std::string> errors(2);
  const auto join = [&](int64_t rank) {
    try {
      join_processes({.rank = rank, .size = 2, .master_port = port}, milliseconds(15'000));
    } catch (const Error& e) {
      errors[rank] = e.what();
    }
  };
  std::thread first(join, 0);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = milliseconds(10'000);
  Socket stranger;
  {
    const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    const std::vector<uint8_t> entry = store->get("focus//0");  // "HOST PORT SECRET"
    std::istringstream text(std::string(entry.begin(), entry.end()));
    Address address;
    text >> address.host >> address.port;
    stranger = connect_to(address, Clock::now() + milliseconds(5000));
  }
  std::thread second(join, 1);
  first.join();
  second.join();
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
}

TEST(Collective, WhoDoesNotComeIsNamed) {
  int64_t port = 0;
  { const Socket free = listen_on("127.0.0.1", port); }
  try {
    join_processes({.rank = 0, .size = 2, .master_port = port}, milliseconds(500));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rank 1 of 2 processes did not start within 0.5 s"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace focus
