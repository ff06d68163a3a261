#pragma once

#include <cstdint>

namespace focus {

/// Bytes of the last cache before memory, as the system tells; 32 MiB where it does not.
int64_t last_level_cache_bytes();

}  // namespace focus
