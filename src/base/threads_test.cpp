#include "base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <thread>

namespace focus {
namespace {

namespace fs = std::filesystem;

class Cgroups : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / "focus_cgroup_test";
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& name, const std::string& content) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << content;
  }
  std::optional<double> limit() { return cgroup_cpu_limit(root_ / "proc", root_ / "sys"); }
  fs::path root_;
};

TEST_F(Cgroups, NoneWithoutFilesOrQuota) {
  EXPECT_EQ(limit(), std::nullopt);
  write("proc", "0::/a\n");
  write("sys/a/cpu.max", "max 100000\n");
  EXPECT_EQ(limit(), std::nullopt);
}

TEST_F(Cgroups, VersionTwoTakesTheLeastOnTheWay) {
  write("proc", "0::/a/b\n");
  write("sys/a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(limit(), 4.0);
  write("sys/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(limit(), 1.5);
}

TEST_F(Cgroups, ContainerRootCountsWhenThePathIsTheHosts) {
  write("proc", "0::/system.slice/docker-1234\n");
  write("sys/cpu.max", "200000 100000\n");
  EXPECT_EQ(limit(), 2.0);
}

TEST_F(Cgroups, VersionOne) {
  write("proc", "12:memory:/x\n4:cpu,cpuacct:/x\n0::/\n");
  write("sys/cpu/x/cpu.cfs_quota_us", "300000\n");
  write("sys/cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit(), 3.0);
  write("sys/cpu/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(limit(), std::nullopt);
}

TEST(Threads, FollowAffinityAndEnvironment) {
  unsetenv("OMP_NUM_THREADS");
  EXPECT_GE(default_thread_count(), 1);
  std::thread([] {
    cpu_set_t set, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) {
        CPU_SET(cpu, &one);
        break;
      }
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(default_thread_count(), 1);
  }).join();
  setenv("OMP_NUM_THREADS", "3", 1);
  EXPECT_EQ(default_thread_count(), 3);
  setenv("OMP_NUM_THREADS", "nonsense", 1);
  EXPECT_GE(default_thread_count(), 1);
  unsetenv("OMP_NUM_THREADS");
}

}  // namespace
}  // namespace focus
