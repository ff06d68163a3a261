#include <csignal>

#include "cli/command.h"

int main(int argc, char** argv) {
  // Writing to a closed pipe gives an error (cli/output.h), so that a run can save before it ends.
  std::signal(SIGPIPE, SIG_IGN);
  return focus::run_program({argv + 1, argv + argc}, focus::commands());
}
