#include "models/row_products.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

namespace focus {

namespace {

// Copies of a function for newer instruction sets, one of which is chosen when the program starts.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define FOCUS_FOR_EACH_ISA [[gnu::target_clones("default", "arch=haswell", "arch=skylake-avx512")]]
#else
#define FOCUS_FOR_EACH_ISA
#endif

constexpr int64_t kLanes = 32;
constexpr int64_t kBlockBytes = 1 << 16;
constexpr int64_t kAhead = 512;  // numbers fetched ahead: the sums of a row and the next one's loads hardly overlap
constexpr int kMostRows = 4;     // rows of x that share one widening of the weights

// Vectors for AVX2; other instruction sets' copies get them split by the compiler.
typedef float Floats __attribute__((vector_size(32)));
typedef uint32_t Words __attribute__((vector_size(32)));
constexpr int64_t kVector = sizeof(Floats) / sizeof(float);

/// A row's numbers in float32, those with even numbers first: a vector of 32-bit words holds two bfloat16 numbers a
/// lane, and each half becomes float32 by one operation.
struct SplitRows {
  int64_t inner;
  std::vector<float> values;  // [rows][inner]

  explicit SplitRows(const at::Tensor& rows) : inner(rows.size(1)), values(static_cast<size_t>(rows.numel())) {
    const auto* x = rows.const_data_ptr<float>();
    for (int64_t m = 0; m < rows.size(0); ++m) {
      float* even = values.data() + m * inner;
      float* odd = even + (inner + 1) / 2;
      for (int64_t k = 0; k < inner; ++k) (k % 2 == 0 ? even : odd)[k / 2] = x[m * inner + k];
    }
  }
  const float* row(int64_t m) const { return values.data() + m * inner; }
};

/// Weights [begin, end) times rows of x, out [rows, columns]; bias null for none.
template <typename Scalar>
struct Columns {
  const Scalar* weight;
  int64_t stride;
  const float* bias;
  int64_t begin, end;
  Scalar* out;
  int64_t columns;

  void set(int64_t m, int64_t n, float product) const {
    out[m * columns + n] = static_cast<Scalar>(product + (bias != nullptr ? bias[n] : 0.0F));
  }
};

/// sums[m] = weight . row m of x for kRows rows `inner` apart, each split as in SplitRows.
template <int kRows>
[[gnu::always_inline]] inline void split_dots(const float* x, int64_t inner, const at::BFloat16* weight, float* sums) {
  const int64_t odd = (inner + 1) / 2;
  const int64_t whole = inner / 2 / kVector * kVector;
  Floats low[kRows] = {}, high[kRows] = {};
  for (int64_t k = 0; k < whole; k += kVector) {
    Words words;
    std::memcpy(&words, weight + 2 * k, sizeof words);
    __builtin_prefetch(weight + 2 * k + kAhead);
    const Words low_bits = words << 16, high_bits = words & 0xFFFF0000U;
    Floats first, second;
    std::memcpy(&first, &low_bits, sizeof first);
    std::memcpy(&second, &high_bits, sizeof second);
#pragma GCC unroll 4
    for (int m = 0; m < kRows; ++m) {
      Floats at_even, at_odd;
      std::memcpy(&at_even, x + m * inner + k, sizeof at_even);
      std::memcpy(&at_odd, x + m * inner + odd + k, sizeof at_odd);
      low[m] += first * at_even;
      high[m] += second * at_odd;
    }
  }
  for (int m = 0; m < kRows; ++m) {
    const Floats both = low[m] + high[m];
    float lanes[kVector];
    std::memcpy(lanes, &both, sizeof lanes);
    for (int64_t half = kVector / 2; half > 0; half /= 2) {
      for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    float sum = lanes[0];
    const float* row = x + m * inner;
    for (int64_t k = 2 * whole; k < inner; ++k) {
      sum += static_cast<float>(weight[k]) * row[k / 2 + (k % 2 == 0 ? 0 : odd)];
    }
    sums[m] = sum;
  }
}

FOCUS_FOR_EACH_ISA
void multiply_bfloat16(const SplitRows& x, int64_t rows, const Columns<at::BFloat16>& part) {
  float sums[kMostRows];
  for (int64_t n = part.begin; n < part.end; ++n) {
    const at::BFloat16* weight = part.weight + n * part.stride;
    int64_t m = 0;
    for (; m + kMostRows <= rows; m += kMostRows) {
      split_dots<kMostRows>(x.row(m), x.inner, weight, sums);
      for (int64_t r = 0; r < kMostRows; ++r) part.set(m + r, n, sums[r]);
    }
    for (; m < rows; ++m) {
      split_dots<1>(x.row(m), x.inner, weight, sums);
      part.set(m, n, sums[0]);
    }
  }
}

FOCUS_FOR_EACH_ISA
void multiply_half(const float* x, int64_t rows, int64_t inner, const Columns<at::Half>& part) {
  for (int64_t n = part.begin; n < part.end; ++n) {
    const at::Half* weight = part.weight + n * part.stride;
    for (int64_t m = 0; m < rows; ++m) {
      const float* row = x + m * inner;
      float lanes[kLanes] = {};
      int64_t k = 0;
      for (; k + kLanes <= inner; k += kLanes) {
        for (int64_t l = 0; l < kLanes; ++l) lanes[l] += row[k + l] * static_cast<float>(weight[k + l]);
      }
      for (int64_t half = kLanes / 2; half > 0; half /= 2) {
        for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
      }
      float sum = lanes[0];
      for (; k < inner; ++k) sum += row[k] * static_cast<float>(weight[k]);
      part.set(m, n, sum);
    }
  }
}

/// One weight of several whose columns are counted through.
template <typename Scalar>
Columns<Scalar> columns_of(const at::Tensor& weight, const at::Tensor& bias, int64_t begin, int64_t end,
                           const at::Tensor& out) {
  return {.weight = weight.const_data_ptr<Scalar>(),
          .stride = weight.stride(0),
          .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
          .begin = begin,
          .end = end,
          .out = out.data_ptr<Scalar>(),
          .columns = weight.size(0)};
}

}  // namespace

std::vector<at::Tensor> row_products(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                     const std::vector<at::Tensor>& biases) {
  const at::Tensor rows = x.to(at::kFloat).contiguous();
  const int64_t inner = rows.size(1);
  const bool bfloat16 = weights.front().scalar_type() == at::kBFloat16;
  const SplitRows split(bfloat16 ? rows : rows.narrow(0, 0, 0));
  std::vector<at::Tensor> results, offsets;  // biases in float32
  std::vector<int64_t> ends;                 // of the weights' columns, counted through
  for (const at::Tensor& weight : weights) {
    const at::Tensor& bias = biases.at(results.size());
    offsets.push_back(bias.defined() ? bias.to(at::kFloat).contiguous() : bias);
    results.push_back(at::empty({x.size(0), weight.size(0)}, weight.options()));
    ends.push_back((ends.empty() ? 0 : ends.back()) + weight.size(0));
  }
  const int64_t block = std::max<int64_t>(1, kBlockBytes / (2 * std::max<int64_t>(1, inner)));
  at::parallel_for(0, ends.back(), block, [&](int64_t begin, int64_t end) {
    for (size_t w = 0; w < weights.size(); ++w) {
      const at::Tensor& weight = weights[w];
      const int64_t columns = weight.size(0);
      const int64_t first = std::max<int64_t>(0, begin - (ends[w] - columns));
      const int64_t last = std::min(columns, end - (ends[w] - columns));
      if (first >= last) continue;
      if (bfloat16) {
        multiply_bfloat16(split, rows.size(0), columns_of<at::BFloat16>(weight, offsets[w], first, last, results[w]));
      } else {
        multiply_half(rows.const_data_ptr<float>(), rows.size(0), inner,
                      columns_of<at::Half>(weight, offsets[w], first, last, results[w]));
      }
    }
  });
  return results;
}

}  // namespace focus
