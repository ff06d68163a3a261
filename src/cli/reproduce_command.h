#pragma once

#include <memory>

#include "cli/command.h"

namespace focus {

/// `focus reproduce NAME...`: the paper's tables (recipes/) with ours beside, measured by running this program's own
/// commands.
std::unique_ptr<Command> make_reproduce_command();

}  // namespace focus
