#pragma once

#include <string>

#include "chat/syntax.h"

namespace focus::jinja {

/// Runs a parsed template over its variables. Throws Error naming the line and what went wrong or is not supported.
std::string render(const Body& body, const Dict& variables);

}  // namespace focus::jinja
