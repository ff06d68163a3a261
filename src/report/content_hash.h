#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace focus {

/// FNV-1a, 64 bits, over everything added. For telling contents apart that nobody forges.
class ContentHash {
 public:
  void add(std::string_view bytes);
  /// 16 hexadecimal digits.
  std::string hex() const;

 private:
  uint64_t state_ = 14695981039346656037ull;
};

/// Hash of a file, or of all files below a folder with their names in it (files and folders that begin with a dot are
/// left out). Of a file above 16 MB its size and 512 pieces of 4 KB spread over it are read: weights that were trained
/// differ everywhere. Throws Error for a path that is not there or cannot be read.
std::string path_hash(const std::filesystem::path& path);

}  // namespace focus
