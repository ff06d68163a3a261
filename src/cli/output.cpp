#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/json_text.h"

namespace focus {

void write_output(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(STDOUT_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EPIPE) throw BrokenPipe();
    if (count < 0) fail("cannot write to standard output: {}", std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void write_json_line(const nlohmann::json& value) {
  write_output(json_text(value) + "\n");
}

}  // namespace focus
