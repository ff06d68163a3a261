#include "attention/kv_cache.h"

#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace focus {

namespace {

constexpr int64_t kFirstChunk = 256;

at::Tensor grown(const at::Tensor& old, int64_t used, int64_t tokens, const at::Tensor& like, at::ScalarType dtype) {
  at::Tensor fresh = at::empty({like.size(0), like.size(1), tokens, like.size(3)}, like.options().dtype(dtype));
  if (used > 0) fresh.narrow(2, 0, used).copy_(old.narrow(2, 0, used));
  return fresh;
}

}  // namespace

void LayerCache::store_as(at::ScalarType dtype) {
  fail("this cache cannot keep its tokens as {}", c10::toString(dtype));
}

KvCache::KvCache(int64_t batch, int64_t capacity) : batch_(batch), capacity_(capacity) {
  require(batch > 0 && capacity > 0, "cache: batch {} and capacity {} must be positive", batch, capacity);
}

void KvCache::check_part(const char* what, const at::Tensor& part, const at::Tensor& held) const {
  require(part.dim() == 4 && part.size(0) == batch_, "cache: {} of shape {} does not fit a batch of {}", what,
          fmt::format("[{}]", fmt::join(part.sizes(), ", ")), batch_);
  if (!held.defined()) return;
  require(part.size(1) == held.size(1) && part.size(3) == held.size(3) && part.scalar_type() == given_,
          "cache: {} with {} heads of size {} in {} does not fit the {} heads of size {} in {} held", what,
          part.size(1), part.size(3), c10::toString(part.scalar_type()), held.size(1), held.size(3),
          c10::toString(given_));
}

void KvCache::reserve(int64_t tokens, const at::Tensor& like_k, const at::Tensor& like_v) {
  const int64_t allocated = keys_.defined() ? keys_.size(2) : 0;
  if (tokens <= allocated) return;
  const int64_t wanted = std::min(capacity_, std::max({tokens, 2 * allocated, kFirstChunk}));
  given_ = like_k.scalar_type();
  keys_ = grown(keys_, length_, wanted, like_k, stored_.value_or(given_));
  values_ = grown(values_, length_, wanted, like_v, stored_.value_or(given_));
}

void KvCache::append(const at::Tensor& k, const at::Tensor& v) {
  check_part("k", k, keys_);
  check_part("v", v, values_);
  require(k.size(1) == v.size(1) && k.size(2) == v.size(2) && k.scalar_type() == v.scalar_type(),
          "cache: k has {} heads and {} tokens in {}, v has {} and {} in {}", k.size(1), k.size(2),
          c10::toString(k.scalar_type()), v.size(1), v.size(2), c10::toString(v.scalar_type()));
  require(!(c10::GradMode::is_enabled() && (k.requires_grad() || v.requires_grad())),
          "cache: keys and values that need gradients cannot be cached");
  const int64_t tokens = k.size(2);
  require(length_ + tokens <= capacity_, "the cache holds {} tokens and {} more exceed its capacity of {}", length_,
          tokens, capacity_);
  reserve(length_ + tokens, k, v);
  keys_.narrow(2, length_, tokens).copy_(k);
  values_.narrow(2, length_, tokens).copy_(v);
  length_ += tokens;
}

at::Tensor KvCache::keys() const {
  require(keys_.defined(), "cache: no tokens held");
  return keys_.narrow(2, 0, length_);
}

at::Tensor KvCache::values() const {
  require(values_.defined(), "cache: no tokens held");
  return values_.narrow(2, 0, length_);
}

int64_t KvCache::bytes() const {
  return keys_.defined() ? static_cast<int64_t>(keys_.nbytes() + values_.nbytes()) : 0;
}

void KvCache::store_as(at::ScalarType dtype) {
  require(!keys_.defined(), "cache: it holds tokens already, so their dtype cannot be chosen any more");
  stored_ = dtype;
}

void KvCache::truncate(int64_t length) {
  require(length >= 0, "cache: cannot keep {} tokens", length);
  length_ = std::min(length_, length);
}

}  // namespace focus
