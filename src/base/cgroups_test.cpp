#include "base/cgroups.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

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
  std::optional<int64_t> memory() { return cgroup_memory_left(root_ / "proc", root_ / "sys"); }
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

TEST_F(Cgroups, MemoryLeftOfVersionTwo) {
  write("proc", "0::/a/b\n");
  EXPECT_EQ(memory(), std::nullopt);
  write("sys/a/b/memory.max", "max\n");
  write("sys/a/b/memory.current", "70\n");
  EXPECT_EQ(memory(), std::nullopt);
  write("sys/a/memory.max", "1000\n");
  write("sys/a/memory.current", "700\n");
  EXPECT_EQ(memory(), 300);
  write("sys/a/memory.stat", "anon 500\nfile 200\n");
  EXPECT_EQ(memory(), 500);
  write("sys/a/b/memory.max", "80\n");
  EXPECT_EQ(memory(), 10);
  write("sys/a/b/memory.current", "90\n");
  EXPECT_EQ(memory(), 0);
}

TEST_F(Cgroups, MemoryLeftOfVersionOne) {
  write("proc", "12:memory:/x\n4:cpu,cpuacct:/x\n");
  write("sys/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/memory/x/memory.usage_in_bytes", "50\n");
  EXPECT_EQ(memory(), std::nullopt);
  write("sys/memory/x/memory.limit_in_bytes", "200\n");
  EXPECT_EQ(memory(), 150);
}

}  // namespace
}  // namespace focus
