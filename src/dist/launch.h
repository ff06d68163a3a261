#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace focus {

/// One of several processes that train together, as what started them says in the environment.
struct Launch {
  int64_t rank = 0;  ///< From 0.
  int64_t size = 1;  ///< Processes.
  std::string master_host = "127.0.0.1";
  int64_t master_port = 29500;
  /// The starter keeps the store at the master's address (torchrun), so rank 0 has none to open.
  bool store_is_open = false;
  std::string run = "";  ///< Name of this start of the run within the store.
};

/// Value of an environment variable, nullopt when it is not set.
using Environment = std::function<std::optional<std::string>(const char*)>;

/// Reads RANK and WORLD_SIZE (torchrun, or set by hand), else OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (mpirun),
/// else, inside a step of SLURM, SLURM_PROCID and SLURM_NTASKS; without any of them one process. MASTER_ADDR (default
/// this machine) and MASTER_PORT (default 29500) say where rank 0 is met. Throws UsageError naming the variable that is
/// missing beside its fellow, is no number or is out of range.
Launch read_launch(const Environment& environment);

/// The same from this process's environment.
Launch read_launch();

}  // namespace focus
