#include "cli/command.h"

namespace focus {

// To add a command: declare its maker here, add one line below and its file to CMakeLists.txt.

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> entries = {};
  return entries;
}

}  // namespace focus
