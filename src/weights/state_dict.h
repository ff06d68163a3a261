#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace focus {

/// Named tensors from which a model takes its weights. Faults (missing, mis-shaped, not floating point, unused) are
/// collected, so that one error names them all.
class StateDict {
 public:
  /// `origin` (a folder or file) begins every error message.
  StateDict(std::vector<std::pair<std::string, at::Tensor>> tensors, std::string origin);

  bool contains(const std::string& name) const;
  std::vector<std::string> names() const;  ///< In the order given.
  /// Bytes of all tensors together, in `dtype` or as they are.
  int64_t size_in(std::optional<at::ScalarType> dtype) const;

  /// The tensor of this name and shape, marked as used. A missing, mis-shaped or non-floating one is noted for
  /// require_all_used() and an undefined tensor comes back.
  at::Tensor take(const std::string& name, at::IntArrayRef shape);
  /// As take(), but absence is no fault.
  std::optional<at::Tensor> take_optional(const std::string& name, at::IntArrayRef shape);

  /// Unused names that end in `suffix` are no fault (buffers that the family recomputes).
  void ignore_suffix(std::string suffix);

  /// Throws one Error that lists missing, mis-shaped and unused names, at most ten of each with their full count.
  void require_all_used() const;

 private:
  struct Entry {
    at::Tensor tensor;
    bool used = false;
  };
  std::string origin_;
  std::vector<std::string> order_;
  std::unordered_map<std::string, Entry> entries_;
  std::vector<std::string> ignored_suffixes_;
  std::vector<std::string> missing_;
  std::vector<std::string> unfit_;
};

}  // namespace focus
