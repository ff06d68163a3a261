#include "dist/launch.h"

#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace focus {

namespace {

constexpr int64_t kMostProcesses = 1024, kLastPort = 65535;

int64_t number(const char* name, const std::string& text, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    fail_usage("environment variable {}={}: expected a number from {} to {}", name, text, low, high);
  }
  return value;
}

struct Starter {
  const char *rank, *size;
  const char* present;  ///< Must be set too for the pair to mean anything.
};

// SLURM sets its pair in batch scripts as well, where nothing else was started; only a step of srun has a number.
constexpr Starter kStarters[] = {{"RANK", "WORLD_SIZE", nullptr},
                                 {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
                                 {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"}};

}  // namespace

Launch read_launch(const Environment& environment) {
  Launch launch;
  for (const Starter& starter : kStarters) {
    const auto rank = environment(starter.rank), size = environment(starter.size);
    if (starter.present != nullptr && !environment(starter.present)) continue;
    if (!rank && !size) continue;
    if (!rank || !size) {
      fail_usage("environment variable {} is set, but {} is not: both or none", rank ? starter.rank : starter.size,
                 rank ? starter.size : starter.rank);
    }
    launch.size = number(starter.size, *size, 1, kMostProcesses);
    launch.rank = number(starter.rank, *rank, 0, launch.size - 1);
    break;
  }
  if (launch.size == 1) return launch;
  launch.master_host = environment("MASTER_ADDR").value_or(launch.master_host);
  if (const auto port = environment("MASTER_PORT")) launch.master_port = number("MASTER_PORT", *port, 1, kLastPort);
  launch.store_is_open = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  launch.run = fmt::format("{}/{}", environment("TORCHELASTIC_RUN_ID").value_or("none"),
                           environment("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  return launch;
}

Launch read_launch() {
  return read_launch([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace focus
