#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "attention/method.h"

namespace focus {

/// Keys and values of the past tokens of one layer, in buffers that grow by doubling up to the capacity. Holds no
/// gradients.
class KvCache : public LayerCache {
 public:
  KvCache(int64_t batch, int64_t capacity);

  /// Adds k and v, each [B, Hkv, T, D], rounded to the dtype of store_as(); the first call fixes Hkv, D, dtype and
  /// device. Throws Error when the tokens
  /// exceed the capacity (naming both numbers), when shapes or dtypes differ from those held, or when gradients would
  /// be lost.
  void append(const at::Tensor& k, const at::Tensor& v);

  at::Tensor keys() const;    ///< View [B, Hkv, length, D].
  at::Tensor values() const;  ///< View [B, Hkv, length, D].

  int64_t length() const override { return length_; }
  int64_t capacity() const { return capacity_; }
  int64_t bytes() const override;
  void truncate(int64_t length) override;
  void store_as(at::ScalarType dtype) override;

 private:
  void check_part(const char* what, const at::Tensor& part, const at::Tensor& held) const;
  void reserve(int64_t tokens, const at::Tensor& like_k, const at::Tensor& like_v);

  int64_t batch_;
  int64_t capacity_;
  int64_t length_ = 0;
  std::optional<at::ScalarType> stored_;  // Absent: as given.
  at::ScalarType given_ = at::kFloat;     // Of the tokens so far.
  at::Tensor keys_;                       // [B, Hkv, allocated, D]
  at::Tensor values_;                     // [B, Hkv, allocated, Dv]
};

}  // namespace focus
