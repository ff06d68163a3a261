#include "base/files.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace focus {

namespace {

namespace fs = std::filesystem;

constexpr size_t kChunk = size_t{1} << 20;

std::string reason(int error) {
  return std::strerror(error);
}

/// A file descriptor that is closed with its scope.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, mode_t mode = 0)
      : value_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  bool ok() const { return value_ >= 0; }
  int get() const { return value_; }
  /// Closes now; false (errno set) when the system reports a late write error.
  bool close() { return ::close(std::exchange(value_, -1)) == 0; }

 private:
  int value_;
};

void require_regular(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) fail("cannot read {}: {}", file.string(), reason(errno));
  if (S_ISDIR(info.st_mode)) fail("cannot read {}: it is a folder, expected a file", file.string());
}

fs::path beside(const fs::path& path, std::string_view kind) {
  fs::path full = path;
  if (!full.has_filename()) full = full.parent_path();
  return full.parent_path() / fmt::format(".{}.{}-{}", full.filename().string(), kind, ::getpid());
}

/// The process that `name` is the temporary name of, as beside() makes them; 0 for other names.
pid_t writer_of(const std::string& name) {
  const size_t dash = name.rfind('-');
  if (!name.starts_with('.') || dash == std::string::npos) return 0;
  const std::string_view before(name.data(), dash), digits(name.data() + dash + 1, name.size() - dash - 1);
  if (!before.ends_with(".tmp")) return 0;
  pid_t writer = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), writer);
  return error == std::errc() && end == digits.data() + digits.size() ? writer : 0;
}

bool sync_path(const fs::path& path) {
  Descriptor descriptor(path, O_RDONLY);
  // Some file systems cannot sync a folder and say EINVAL; nothing more can be done there.
  return descriptor.ok() && (::fsync(descriptor.get()) == 0 || errno == EINVAL);
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

std::string read_file(const fs::path& file) {
  require_regular(file);
  Descriptor descriptor(file, O_RDONLY);
  if (!descriptor.ok()) fail("cannot read {}: {}", file.string(), reason(errno));
  std::string content;
  struct stat info {};
  if (::fstat(descriptor.get(), &info) == 0 && info.st_size > 0) content.reserve(static_cast<size_t>(info.st_size));
  std::string chunk(kChunk, '\0');
  while (true) {
    const ssize_t count = ::read(descriptor.get(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot read {}: {}", file.string(), reason(errno));
    if (count == 0) return content;
    content.append(chunk, 0, static_cast<size_t>(count));
  }
}

std::string read_text_or_gzip(const fs::path& file) {
  require_regular(file);
  gzFile stream = gzopen(file.c_str(), "rbe");
  if (stream == nullptr) fail("cannot read {}: {}", file.string(), reason(errno));
  std::string content;
  std::string chunk(kChunk, '\0');
  int count = 0;
  while ((count = gzread(stream, chunk.data(), static_cast<unsigned>(chunk.size()))) > 0) {
    content.append(chunk, 0, static_cast<size_t>(count));
  }
  const bool packed = !gzdirect(stream);
  int code = Z_OK;
  std::string message = gzerror(stream, &code);
  if (code == Z_ERRNO) message = reason(errno);
  gzclose(stream);
  // A stream that ends early is only reported as Z_BUF_ERROR, after all its data were handed out.
  if (code != Z_OK && code != Z_STREAM_END) {
    fail("cannot read {}: damaged or cut-off gzip data after {} bytes of text ({})", file.string(), content.size(),
         message);
  }
  if (!packed && !content.empty() && file.extension() == ".gz")
    fail("cannot read {}: not gzip data, which its name promises", file.string());
  return content;
}

void write_file_atomically(const fs::path& file, std::string_view content) {
  write_file_atomically(file, std::vector{content});
}

void write_file_atomically(const fs::path& file, const std::vector<std::string_view>& parts) {
  const fs::path temporary = beside(file, "tmp");
  auto give_up = [&](const char* step) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail("cannot write {}: {}: {}", file.string(), step, reason(error));
  };
  Descriptor descriptor(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (!descriptor.ok()) give_up("create");
  for (std::string_view rest : parts) {
    while (!rest.empty()) {
      const ssize_t count = ::write(descriptor.get(), rest.data(), rest.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) give_up("write");
      rest.remove_prefix(static_cast<size_t>(count));
    }
  }
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL) give_up("fsync");
  if (!descriptor.close()) give_up("close");
  if (::rename(temporary.c_str(), file.c_str()) != 0) give_up("rename");
  sync_path(folder_of(file));
}

void prepare_output_folder(const fs::path& folder, std::string_view what) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error && !fs::is_directory(folder)) {
    fail("{} {}: cannot create the folder: {}", what, folder.string(), error.message());
  }
  const fs::path probe = folder / fmt::format(".focus-probe-{}", ::getpid());
  Descriptor descriptor(probe, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (!descriptor.ok()) fail("{} {}: cannot write in the folder: {}", what, folder.string(), reason(errno));
  ::unlink(probe.c_str());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const pid_t writer = writer_of(entry.path().filename().string());
    if (writer > 0 && ::kill(writer, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), error);
  }
}

void discard_folder(const fs::path& folder) {
  const fs::path temporary = beside(folder, "tmp");
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::rename(folder, temporary, error);
  fs::remove_all(error ? folder : temporary, error);
}

FolderLock::FolderLock(const fs::path& folder, std::string_view what)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  require(descriptor_ >= 0, "{} {}: cannot open the folder: {}", what, folder.string(), reason(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    fail("{} {}: another run is writing there; wait for it or name another folder", what, folder.string());
  }
}

FolderLock::~FolderLock() {
  ::close(descriptor_);
}

PendingFolder::PendingFolder(fs::path final_path, std::vector<std::string> stale)
    : final_(std::move(final_path)), stale_(std::move(stale)) {
  if (!final_.has_filename()) final_ = final_.parent_path();
  std::error_code error;
  if (fs::is_symlink(final_)) {
    const fs::path target = fs::weakly_canonical(final_, error);
    if (!error) final_ = target;
  }
  temporary_ = beside(final_, "tmp");
  fs::remove_all(temporary_, error);
  fs::create_directories(temporary_, error);
  if (error) fail("cannot create {}: {}", temporary_.string(), error.message());
}

PendingFolder::~PendingFolder() {
  std::error_code ignored;
  if (!published_) fs::remove_all(temporary_, ignored);
}

/// Links what the former folder holds of others' into the new one: a kill before or after the exchange loses nothing.
void PendingFolder::keep_foreign() {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(final_, none)) {
    const std::string name = entry.path().filename().string();
    const bool ours = std::any_of(stale_.begin(), stale_.end(), [&](const auto& end) { return name.ends_with(end); });
    const fs::path kept = temporary_ / name;
    if (ours || fs::symlink_status(kept).type() != fs::file_type::not_found) continue;
    std::error_code error;
    const auto copy = fs::copy_options::recursive | fs::copy_options::copy_symlinks;
    fs::copy(entry.path(), kept, copy | fs::copy_options::create_hard_links, error);
    if (error) {
      fs::remove_all(kept, error);
      fs::copy(entry.path(), kept, copy, error);
    }
    require(!error, "{}: cannot keep {}: {}", final_.string(), name, error.message());
  }
}

void PendingFolder::publish() {
  require(!published_, "{} is already published", final_.string());
  keep_foreign();
  for (const auto& entry : fs::recursive_directory_iterator(temporary_)) {
    if (entry.is_symlink() || !(entry.is_regular_file() || entry.is_directory())) continue;
    if (!sync_path(entry.path())) fail("cannot write {}: fsync: {}", entry.path().string(), reason(errno));
  }
  if (!sync_path(temporary_)) fail("cannot write {}: fsync: {}", temporary_.string(), reason(errno));
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) == 0) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  } else if (::rename(temporary_.c_str(), final_.c_str()) != 0) {
    // Only where the file system has no exchange: move the former folder out of the way.
    const fs::path former = beside(final_, "old");
    if (errno != ENOTEMPTY && errno != EEXIST) fail("cannot write {}: rename: {}", final_.string(), reason(errno));
    if (::rename(final_.c_str(), former.c_str()) != 0 || ::rename(temporary_.c_str(), final_.c_str()) != 0) {
      const int error = errno;
      ::rename(former.c_str(), final_.c_str());
      fail("cannot write {}: rename: {}", final_.string(), reason(error));
    }
    std::error_code ignored;
    fs::remove_all(former, ignored);
  }
  published_ = true;
  sync_path(folder_of(final_));
}

}  // namespace focus
