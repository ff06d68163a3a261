#pragma once

#include <memory>

#include "cli/command.h"

namespace focus {

std::unique_ptr<Command> make_inspect_command();

}  // namespace focus
