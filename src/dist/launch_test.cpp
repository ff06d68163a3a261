#include "dist/launch.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace focus {
namespace {

Launch launch_of(const std::map<std::string, std::string>& variables) {
  return read_launch([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(Launch, NothingSetIsOneProcess) {
  const Launch launch = launch_of({});
  EXPECT_EQ(launch.rank, 0);
  EXPECT_EQ(launch.size, 1);
}

TEST(Launch, EachStarterIsKnown) {
  const Launch torchrun = launch_of({{"RANK", "1"},
                                     {"WORLD_SIZE", "3"},
                                     {"MASTER_ADDR", "node7"},
                                     {"MASTER_PORT", "4000"},
                                     {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                     {"TORCHELASTIC_RUN_ID", "abc"},
                                     {"TORCHELASTIC_RESTART_COUNT", "2"},
                                     {"SLURM_PROCID", "0"},
                                     {"SLURM_NTASKS", "8"},
                                     {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(torchrun.rank, 1);
  EXPECT_EQ(torchrun.size, 3);
  EXPECT_EQ(torchrun.master_host, "node7");
  EXPECT_EQ(torchrun.master_port, 4000);
  EXPECT_TRUE(torchrun.store_is_open);
  EXPECT_EQ(torchrun.run, "abc/2");
  const Launch mpirun = launch_of({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(mpirun.rank, 3);
  EXPECT_EQ(mpirun.size, 4);
  EXPECT_FALSE(mpirun.store_is_open);
  const Launch srun = launch_of({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(srun.rank, 1);
  EXPECT_EQ(srun.size, 2);
}

TEST(Launch, ABatchScriptOfSlurmIsOneProcess) {
  EXPECT_EQ(launch_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}).size, 1);
}

TEST(Launch, NonsenseIsRefused) {
  EXPECT_THROW(launch_of({{"RANK", "0"}}), UsageError);
  EXPECT_THROW(launch_of({{"WORLD_SIZE", "2"}}), UsageError);
  EXPECT_THROW(launch_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), UsageError);
  EXPECT_THROW(launch_of({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), UsageError);
  EXPECT_THROW(launch_of({{"RANK", "0"}, {"WORLD_SIZE", "two"}}), UsageError);
  EXPECT_THROW(launch_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}), UsageError);
}

}  // namespace
}  // namespace focus
