#include "weights/resident_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace focus {
namespace {

TEST(ResidentMemory, CopiesOutliveTheMemoryAndDoNotOverlap) {
  std::vector<at::Tensor> sources, copies;
  {
    ResidentMemory memory;
    for (const int64_t rows : {1, 3, 1000, 40'000, 0, 7}) {  // 40,000 x 577 numbers are more than a region
      sources.push_back(at::randn({rows, 577}).to(at::kBFloat16));
      copies.push_back(memory.copy(sources.back(), at::kBFloat16));
    }
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    EXPECT_TRUE(at::equal(copies[i], sources[i])) << i;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(copies[i].data_ptr()) % 64, 0U) << i;
    copies[i].fill_(static_cast<double>(i));
  }
  for (size_t i = 0; i < copies.size(); ++i) EXPECT_TRUE(copies[i].eq(static_cast<double>(i)).all().item<bool>()) << i;
}

TEST(ResidentMemory, ACopyOfAStridedTensorIsContiguousAndConverted) {
  ResidentMemory memory;
  const at::Tensor source = at::arange(12, at::kFloat).view({3, 4}).t();
  const at::Tensor copied = memory.copy(source, at::kDouble);
  EXPECT_TRUE(copied.is_contiguous());
  EXPECT_TRUE(at::equal(copied, source.to(at::kDouble)));
}

}  // namespace
}  // namespace focus
