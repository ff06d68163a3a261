#include "bench/cache_size.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace focus {

namespace {

/// "32768K" or "32M" of a file under /sys; 0 if there is none.
int64_t cache_file_bytes(int index) {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
  int64_t size = 0;
  char unit = ' ';
  if (!(file >> size)) return 0;
  file >> unit;
  return unit == 'M' ? size << 20 : unit == 'K' ? size << 10 : size;
}

}  // namespace

int64_t last_level_cache_bytes() {
  int64_t largest = 0;
#ifdef _SC_LEVEL4_CACHE_SIZE
  for (const int name : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE}) {
    largest = std::max<int64_t>(largest, sysconf(name));
  }
#endif
  for (int index = 0; index < 5; ++index) largest = std::max(largest, cache_file_bytes(index));
  return largest > 0 ? largest : int64_t{32} << 20;
}

}  // namespace focus
