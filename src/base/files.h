#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// The whole file. Throws Error with the path and the system's reason.
std::string read_file(const std::filesystem::path& file);

/// The whole file, unpacked if it is gzip data (whatever its name). Throws Error with the path when it cannot be read,
/// is damaged or ends early, and when it has a name in .gz but holds other than gzip data.
std::string read_text_or_gzip(const std::filesystem::path& file);

/// Replaces or creates `file` so that a crash leaves the old content or the new, never a part: written to a temporary
/// file in the same folder, fsync, rename. Throws Error (full disk, no permission ...) and leaves what was there.
void write_file_atomically(const std::filesystem::path& file, std::string_view content);
/// The same for a content in several parts, written one after another without joining them in memory.
void write_file_atomically(const std::filesystem::path& file, const std::vector<std::string_view>& parts);

/// Creates the folder with its parents if need be and makes sure that files can be written in it, so that a long run
/// does not fail at its end. `what` names it in the Error, such as "--out". Temporary files and folders in it whose
/// writers were killed are removed.
void prepare_output_folder(const std::filesystem::path& folder, std::string_view what);

/// Removes a folder that is no longer wanted in such a way that a kill half-way leaves it whole or gone (what remains
/// has a temporary name). Failures are ignored.
void discard_folder(const std::filesystem::path& folder);

/// Holds a folder for one run: another process that asks for the same folder meanwhile gets an Error. Ends with the
/// object or the process, however that ends. (On file systems without locks it does nothing.)
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder, std::string_view what);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

/// A folder that appears under its final name only when it is complete: filled under a temporary name beside it,
/// flushed to disk and renamed by publish(). A former folder of that name is replaced in one step, but what it holds
/// beside our own files stays: whatever the new one lacks and whose name does not end in one of `stale`. A link to a
/// folder stays a link. Without publish() nothing changes.
class PendingFolder {
 public:
  /// Creates the temporary folder (and missing parents). Throws Error.
  explicit PendingFolder(std::filesystem::path final_path, std::vector<std::string> stale = {});
  ~PendingFolder();
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;

  /// Where to write.
  const std::filesystem::path& path() const { return temporary_; }
  /// Throws Error and keeps the former folder when a step fails.
  void publish();

 private:
  void keep_foreign();

  std::filesystem::path final_;
  std::filesystem::path temporary_;
  std::vector<std::string> stale_;
  bool published_ = false;
};

}  // namespace focus
