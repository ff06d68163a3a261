#include "attention/methods/decode.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace focus {

namespace {

constexpr int64_t kLanes = 16;

// Dot product in kLanes partial sums, which the compiler turns into vectors.
template <typename Scalar>
float dot(const float* a, const Scalar* b, int64_t n) {
  float lanes[kLanes] = {};
  int64_t x = 0;
  for (; x + kLanes <= n; x += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += a[x + l] * static_cast<float>(b[x + l]);
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; x < n; ++x) sum += a[x] * static_cast<float>(b[x]);
  return sum;
}

struct Job {
  int64_t heads;  // query heads of this KV head
  int64_t key_dim;
  int64_t value_dim;
  float scale;
  float softcap;
};

// q [heads, key_dim], out [heads, value_dim], both float; keys and values rows with their strides.
template <typename Scalar>
void attend_one(const Job& job, const float* q, const Scalar* keys, int64_t key_stride, const Scalar* values,
                int64_t value_stride, const std::vector<int32_t>& positions, float* out) {
  const size_t n = positions.size();
  std::vector<float> weights(n * static_cast<size_t>(job.heads));
  std::fill(out, out + job.heads * job.value_dim, 0.0F);
  if (n == 0) return;
  for (size_t i = 0; i < n; ++i) {
    const Scalar* key = keys + positions[i] * key_stride;
    for (int64_t h = 0; h < job.heads; ++h) {
      float score = job.scale * dot(q + h * job.key_dim, key, job.key_dim);
      if (job.softcap > 0) score = job.softcap * std::tanh(score / job.softcap);
      weights[static_cast<size_t>(h) * n + i] = score;
    }
  }
  for (int64_t h = 0; h < job.heads; ++h) {
    float* row = weights.data() + static_cast<size_t>(h) * n;
    const float largest = *std::max_element(row, row + n);
    float sum = 0;
    for (size_t i = 0; i < n; ++i) sum += row[i] = std::exp(row[i] - largest);
    for (size_t i = 0; i < n; ++i) row[i] /= sum;
  }
  for (size_t i = 0; i < n; ++i) {
    const Scalar* value = values + positions[i] * value_stride;
    for (int64_t h = 0; h < job.heads; ++h) {
      const float weight = weights[static_cast<size_t>(h) * n + i];
      float* row = out + h * job.value_dim;
      for (int64_t x = 0; x < job.value_dim; ++x) row[x] += weight * static_cast<float>(value[x]);
    }
  }
}

}  // namespace

at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const std::vector<std::vector<int32_t>>& positions, int64_t sets, double scale,
                            double softcap) {
  const int64_t batch = q.size(0);
  const int64_t kv_heads = keys.size(1);
  require(q.dim() == 4 && q.size(2) == 1 && kv_heads > 0 && q.size(1) % kv_heads == 0,
          "decode: one token of query heads that are a multiple of the {} KV heads was expected", kv_heads);
  require(sets == 1 || sets == kv_heads, "decode: {} list sets for {} KV heads", sets, kv_heads);
  require(keys.stride(3) == 1 && values.stride(3) == 1, "decode: keys and values must be contiguous in a row");
  const Job job{q.size(1) / kv_heads, keys.size(3), values.size(3), static_cast<float>(scale),
                static_cast<float>(softcap)};
  const at::Tensor query = q.to(at::kFloat).contiguous();
  const at::Tensor out = at::empty({batch, q.size(1), 1, values.size(3)}, query.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, keys.scalar_type(), "decode_attention", [&] {
    const float* query_data = query.const_data_ptr<float>();
    const scalar_t* key_data = keys.const_data_ptr<scalar_t>();
    const scalar_t* value_data = values.const_data_ptr<scalar_t>();
    float* out_data = out.data_ptr<float>();
    at::parallel_for(0, batch * kv_heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t b = i / kv_heads;
        const int64_t h = i % kv_heads;
        attend_one(job, query_data + i * job.heads * job.key_dim, key_data + b * keys.stride(0) + h * keys.stride(1),
                   keys.stride(2), value_data + b * values.stride(0) + h * values.stride(1), values.stride(2),
                   positions[static_cast<size_t>(b * sets + (sets == 1 ? 0 : h))],
                   out_data + i * job.heads * job.value_dim);
      }
    });
  });
  return out.to(q.scalar_type());
}

}  // namespace focus
