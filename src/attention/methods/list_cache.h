#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "attention/decode.h"
#include "attention/kv_cache.h"
#include "attention/method.h"

namespace focus {

/// Keys and values of a layer together with the list of every token and, for each list, its members in order of
/// position, so that one new token finds its keys without looking at the others.
class ListCache : public LayerCache {
 public:
  ListCache(int64_t batch, int64_t capacity);

  /// Adds T tokens: k and v [B, Hkv, T, D], key_group int32 [B, Hg, T]. Throws Error as KvCache::append does and for a
  /// key_group that does not fit.
  void append(const at::Tensor& k, const at::Tensor& v, const at::Tensor& key_group);

  at::Tensor keys() const { return kv_.keys(); }
  at::Tensor values() const { return kv_.values(); }
  /// int32 [B, Hg, length].
  at::Tensor key_group() const;
  /// Positions of the tokens in a list, ascending; empty for a list that was never used.
  const std::vector<int32_t>& members(int64_t batch, int64_t set, int64_t list) const;

  /// The keys of a query: the members of the lists it probes (ids [slots], negative unused) at positions first .. near
  /// - 1, and everything from `near` on.
  KeyChoice choose(int64_t batch, int64_t set, const int32_t* probes, int64_t slots, int64_t first, int64_t near) const;

  int64_t length() const override { return kv_.length(); }
  int64_t bytes() const override;
  void truncate(int64_t length) override;
  void store_as(at::ScalarType dtype) override { kv_.store_as(dtype); }

 private:
  KvCache kv_;
  int64_t batch_;
  int64_t sets_ = 0;
  std::vector<std::vector<int32_t>> groups_;                // [B * Hg][length]
  std::vector<std::vector<std::vector<int32_t>>> members_;  // [B * Hg][list]
};

}  // namespace focus
