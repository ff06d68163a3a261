#pragma once

namespace focus {

/// While it lives, the first Ctrl-C (SIGINT), SIGTERM or SIGHUP only says so and sets a flag that long work polls with
/// interrupted(), so that it can save and end; the second ends the process at once as without a guard. Guards may nest;
/// the handlers go and the flag is cleared with the outermost. To be made and destroyed on one thread.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

/// Whether a signal came since the outermost guard was made. False without one. Safe to call from any thread.
bool interrupted();

}  // namespace focus
