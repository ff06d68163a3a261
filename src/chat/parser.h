#pragma once

#include <string>

#include "chat/syntax.h"

namespace focus::jinja {

/// Parses a template. Throws Error naming the line and the tag or expression that is wrong or not supported.
Body parse(const std::string& source);

}  // namespace focus::jinja
