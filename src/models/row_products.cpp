#include "models/row_products.h"

#include <ATen/Parallel.h>

#include <algorithm>

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

template <typename Scalar>
[[gnu::always_inline]] inline float dot(const float* x, const Scalar* weight, int64_t count) {
  float lanes[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += x[k + l] * static_cast<float>(weight[k + l]);
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; k < count; ++k) sum += x[k] * static_cast<float>(weight[k]);
  return sum;
}

/// out[m, n] for n in [begin, end): x [rows, inner] float, weight rows `stride` apart, bias null for none.
template <typename Scalar>
[[gnu::always_inline]] inline void multiply(const float* x, int64_t rows, int64_t inner, const Scalar* weight,
                                            int64_t stride, const float* bias, int64_t begin, int64_t end, Scalar* out,
                                            int64_t columns) {
  for (int64_t n = begin; n < end; ++n) {
    const float offset = bias != nullptr ? bias[n] : 0.0F;
    for (int64_t m = 0; m < rows; ++m) {
      out[m * columns + n] = static_cast<Scalar>(dot(x + m * inner, weight + n * stride, inner) + offset);
    }
  }
}

FOCUS_FOR_EACH_ISA
void multiply_bfloat16(const float* x, int64_t rows, int64_t inner, const at::BFloat16* weight, int64_t stride,
                       const float* bias, int64_t begin, int64_t end, at::BFloat16* out, int64_t columns) {
  multiply(x, rows, inner, weight, stride, bias, begin, end, out, columns);
}

FOCUS_FOR_EACH_ISA
void multiply_half(const float* x, int64_t rows, int64_t inner, const at::Half* weight, int64_t stride,
                   const float* bias, int64_t begin, int64_t end, at::Half* out, int64_t columns) {
  multiply(x, rows, inner, weight, stride, bias, begin, end, out, columns);
}

}  // namespace

std::vector<at::Tensor> row_products(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                     const std::vector<at::Tensor>& biases) {
  const at::Tensor rows = x.to(at::kFloat).contiguous();
  const int64_t inner = rows.size(1);
  const auto* data = rows.const_data_ptr<float>();
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
      const float* bias = offsets[w].defined() ? offsets[w].const_data_ptr<float>() : nullptr;
      if (weight.scalar_type() == at::kBFloat16) {
        multiply_bfloat16(data, x.size(0), inner, weight.const_data_ptr<at::BFloat16>(), weight.stride(0), bias, first,
                          last, results[w].data_ptr<at::BFloat16>(), columns);
      } else {
        multiply_half(data, x.size(0), inner, weight.const_data_ptr<at::Half>(), weight.stride(0), bias, first, last,
                      results[w].data_ptr<at::Half>(), columns);
      }
    }
  });
  return results;
}

}  // namespace focus
