#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace focus {

/// "0:07", "12:05", "1:02:03".
std::string format_duration(double seconds);

/// Progress of a long loop on standard error: on a terminal one line redrawn in place, otherwise a log line about every
/// ten seconds; nothing with --quiet. The line goes away with the object.
class Progress {
 public:
  /// `total` units of work, of which `start` were done before (a resumed run; they do not count for the rate). A total
  /// of 0 means unknown.
  Progress(std::string label, int64_t total, std::string unit, int64_t start = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t units = 1) { set(done_ + units); }
  void set(int64_t done);
  int64_t done() const { return done_; }
  /// Free text at the end of the line, such as "loss 2.31".
  void note(std::string text) { note_ = std::move(text); }
  double seconds() const;

  /// The line as it stands: "train 30/100 steps, 2.5 steps/s, 0:28 left, loss 2.31".
  static std::string text(const std::string& label, int64_t done, int64_t total, int64_t start, double seconds,
                          const std::string& unit, const std::string& note);

 private:
  using Clock = std::chrono::steady_clock;

  std::string label_;
  int64_t total_;
  std::string unit_;
  int64_t start_;
  int64_t done_;
  std::string note_;
  Clock::time_point began_;
  Clock::time_point shown_;
};

}  // namespace focus
