#include "attention/kv_cache.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace focus {
namespace {

TEST(KvCache, HoldsWhatIsAppendedWhileItGrows) {
  KvCache cache(2, 700);
  const at::Tensor k = at::randn({2, 3, 700, 4});
  const at::Tensor v = at::randn({2, 3, 700, 4});
  int64_t done = 0;
  for (const int64_t size : {1, 255, 1, 300, 143}) {
    cache.append(k.narrow(2, done, size), v.narrow(2, done, size));
    done += size;
    EXPECT_EQ(cache.length(), done);
    EXPECT_TRUE(cache.keys().equal(k.narrow(2, 0, done)));
    EXPECT_TRUE(cache.values().equal(v.narrow(2, 0, done)));
  }
  EXPECT_EQ(cache.bytes(), 2 * 2 * 3 * 700 * 4 * 4);
}

TEST(KvCache, NamesBothNumbersWhenFull) {
  KvCache cache(1, 5);
  cache.append(at::zeros({1, 1, 4, 2}), at::zeros({1, 1, 4, 2}));
  try {
    cache.append(at::zeros({1, 1, 2, 2}), at::zeros({1, 1, 2, 2}));
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "the cache holds 4 tokens and 2 more exceed its capacity of 5");
  }
  EXPECT_EQ(cache.length(), 4);
}

TEST(KvCache, TruncatedTokensAreReplaced) {
  KvCache cache(1, 8);
  cache.append(at::ones({1, 1, 6, 2}), at::ones({1, 1, 6, 2}));
  cache.truncate(2);
  cache.append(at::zeros({1, 1, 1, 2}), at::zeros({1, 1, 1, 2}));
  EXPECT_EQ(cache.length(), 3);
  EXPECT_EQ(cache.keys().sum().item<float>(), 4);
  cache.truncate(100);
  EXPECT_EQ(cache.length(), 3);
  EXPECT_THROW(cache.truncate(-1), Error);
}

TEST(KvCache, KeepsTokensInTheDtypeAskedFor) {
  KvCache cache(1, 8);
  cache.store_as(at::kBFloat16);
  const at::Tensor k = at::randn({1, 2, 5, 4});
  const at::Tensor v = at::randn({1, 2, 5, 4});
  cache.append(k, v);
  EXPECT_EQ(cache.bytes(), 2 * 2 * 8 * 4 * 2);
  EXPECT_TRUE(at::equal(cache.keys(), k.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(cache.values(), v.to(at::kBFloat16)));
  EXPECT_THROW(cache.append(k.narrow(2, 0, 1).to(at::kBFloat16), v.narrow(2, 0, 1).to(at::kBFloat16)), Error);
  EXPECT_THROW(cache.store_as(at::kFloat), Error);
}

TEST(KvCache, RefusesWhatDoesNotFit) {
  KvCache cache(1, 8);
  EXPECT_THROW(cache.keys(), Error);
  EXPECT_THROW(cache.append(at::zeros({2, 1, 1, 2}), at::zeros({2, 1, 1, 2})), Error);
  EXPECT_THROW(cache.append(at::zeros({1, 1, 2, 2}), at::zeros({1, 1, 1, 2})), Error);
  const at::Tensor needs_grad = at::zeros({1, 1, 1, 2}).requires_grad_();
  EXPECT_THROW(cache.append(needs_grad, needs_grad), Error);
  cache.append(at::zeros({1, 1, 1, 2}), at::zeros({1, 1, 1, 2}));
  EXPECT_THROW(cache.append(at::zeros({1, 3, 1, 2}), at::zeros({1, 3, 1, 2})), Error);
  EXPECT_THROW(cache.append(at::zeros({1, 1, 1, 2}, at::kHalf), at::zeros({1, 1, 1, 2}, at::kHalf)), Error);
  EXPECT_THROW(KvCache(1, 0), Error);
}

}  // namespace
}  // namespace focus
