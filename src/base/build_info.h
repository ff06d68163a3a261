#pragma once

namespace focus {

/// "0.1.0"
const char* version();
/// Git commit of the sources, "-dirty" behind it when they were changed since; "unknown" outside a repository.
const char* build_commit();
/// "Release", "Debug" ...
const char* build_type();

}  // namespace focus
