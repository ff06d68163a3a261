#include "base/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace focus {
namespace {

TEST(Memory, AvailableIsSomeAndNoMoreThanTheMachineHas) {
  EXPECT_GT(available_memory(), 0);
  EXPECT_LT(available_memory(), int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE));
}

}  // namespace
}  // namespace focus
