#include "report/content_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "base/error.h"

namespace focus {

namespace fs = std::filesystem;

namespace {

constexpr uintmax_t kWholeFile = 16u << 20;
constexpr uintmax_t kPieces = 512, kPieceBytes = 4096;

void add_file(const fs::path& file, ContentHash& hash) {
  const uintmax_t size = fs::file_size(file);
  std::ifstream stream(file, std::ios::binary);
  require(stream.good(), "{}: cannot be read", file.string());
  const bool whole = size <= kWholeFile;
  std::string buffer(whole ? size : kPieceBytes, '\0');
  hash.add(std::to_string(size));
  for (uintmax_t piece = 0; piece < (whole ? 1 : kPieces); ++piece) {
    if (!whole) stream.seekg(static_cast<std::streamoff>((size - kPieceBytes) / (kPieces - 1) * piece));
    stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    require(stream.gcount() == static_cast<std::streamsize>(buffer.size()), "{}: cannot be read", file.string());
    hash.add(buffer);
  }
}

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

}  // namespace

void ContentHash::add(std::string_view bytes) {
  const auto mix = [this](unsigned char byte) { state_ = (state_ ^ byte) * 1099511628211ull; };
  for (const char c : bytes) mix(static_cast<unsigned char>(c));
  mix(0);
}

std::string ContentHash::hex() const {
  return fmt::format("{:016x}", state_);
}

std::string path_hash(const fs::path& path) {
  ContentHash hash;
  try {
    if (fs::is_directory(path)) {
      std::vector<fs::path> files;
      for (auto at = fs::recursive_directory_iterator(path, fs::directory_options::follow_directory_symlink);
           at != fs::recursive_directory_iterator(); ++at) {
        if (is_hidden(at->path())) {
          if (at->is_directory()) at.disable_recursion_pending();
        } else if (at->is_regular_file()) {
          files.push_back(at->path());
        }
      }
      std::sort(files.begin(), files.end());
      for (const fs::path& file : files) {
        hash.add(file.lexically_relative(path).string());
        add_file(file, hash);
      }
    } else {
      require(fs::is_regular_file(path), "{}: no such file or folder", path.string());
      add_file(path, hash);
    }
  } catch (const fs::filesystem_error& error) {
    fail("{}: {}", path.string(), error.code().message());
  }
  return hash.hex();
}

}  // namespace focus
