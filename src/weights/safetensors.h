#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace focus {

/// A memory-mapped safetensors file. Tensors are views of the mapping (no copy; private pages, so writing to one never
/// changes the file) and keep it alive. Every length, offset, shape and dtype of the header is checked on opening.
class SafetensorsFile {
 public:
  /// Throws Error with the file, what is wrong, and byte counts.
  static SafetensorsFile open(const std::filesystem::path& file);

  std::vector<std::string> names() const;  ///< In file order.
  bool contains(const std::string& name) const;
  at::Tensor tensor(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;
  const std::filesystem::path& path() const;

 private:
  struct Impl;
  explicit SafetensorsFile(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// Lets the system take back the memory that holds a tensor of a mapped file, once it has been copied elsewhere;
/// reading the tensor again brings it back from the file. Without effect on other tensors.
void release_pages(const at::Tensor& tensor);

/// Writes a file that the safetensors library reads, to a temporary name first, then fsync and rename: a failure leaves
/// what was there. Throws Error (full disk, no permission ...).
void write_safetensors(const std::filesystem::path& file,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace focus
