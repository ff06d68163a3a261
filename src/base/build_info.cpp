#include "base/build_info.h"

#include "focus_build_commit.h"

namespace focus {

const char* version() {
  return FOCUS_VERSION;
}
const char* build_commit() {
  return FOCUS_BUILD_COMMIT;
}
const char* build_type() {
  return FOCUS_BUILD_TYPE;
}

}  // namespace focus
