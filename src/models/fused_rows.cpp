#include "models/fused_rows.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace focus {

namespace {

constexpr int64_t kGrainElements = 1 << 14;
constexpr int64_t kLanes = 16;

bool is_supported(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

/// Calls `work` with a value of the C++ type of the dtype.
template <typename Work>
void with_scalar(at::ScalarType dtype, const Work& work) {
  if (dtype == at::kFloat) {
    work(float{});
  } else if (dtype == at::kBFloat16) {
    work(at::BFloat16{});
  } else {
    work(at::Half{});
  }
}

template <typename Scalar>
float mean_square(const Scalar* x, int64_t count) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const auto value = static_cast<float>(x[i + l]);
      lanes[l] += value * value;
    }
  }
  float sum = 0;
  for (; i < count; ++i) sum += static_cast<float>(x[i]) * static_cast<float>(x[i]);
  for (const float lane : lanes) sum += lane;
  return sum / static_cast<float>(count);
}

template <typename Scalar>
void normalise_row(const Scalar* x, const Scalar* weight, int64_t count, float eps, NormWeight kind, Scalar* out) {
  const float factor = 1.0F / std::sqrt(mean_square(x, count) + eps);
  if (weight == nullptr) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<Scalar>(static_cast<float>(x[i]) * factor);
  } else if (kind == NormWeight::kAfterRounding) {
    for (int64_t i = 0; i < count; ++i) {
      const auto normal = static_cast<Scalar>(static_cast<float>(x[i]) * factor);
      out[i] = static_cast<Scalar>(static_cast<float>(weight[i]) * static_cast<float>(normal));
    }
  } else {
    const float added = kind == NormWeight::kOnePlus ? 1.0F : 0.0F;
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<Scalar>(static_cast<float>(x[i]) * factor * (added + static_cast<float>(weight[i])));
    }
  }
}

template <typename Scalar, typename Table>
void turn_row(const Scalar* x, const Table* cos, const Table* sin, int64_t half, Scalar* out) {
  for (int64_t i = 0; i < half; ++i) {
    const auto first = static_cast<float>(x[i]);
    const auto second = static_cast<float>(x[half + i]);
    const auto c = static_cast<float>(cos[i]);
    const auto s = static_cast<float>(sin[i]);
    out[i] = static_cast<Scalar>(first * c - second * s);
    out[half + i] = static_cast<Scalar>(second * c + first * s);
  }
}

template <typename Scalar, typename Table>
void turn(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, const at::Tensor& out) {
  const int64_t heads = x.size(1);
  const int64_t tokens = x.size(2);
  const int64_t size = x.size(3);
  const Scalar* data = x.const_data_ptr<Scalar>();
  Scalar* result = out.data_ptr<Scalar>();
  const int64_t grain = std::max<int64_t>(1, kGrainElements / size);
  at::parallel_for(0, x.size(0) * heads * tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t t = row % tokens;
      const int64_t h = row / tokens % heads;
      const int64_t b = row / tokens / heads;
      turn_row(data + b * x.stride(0) + h * x.stride(1) + t * x.stride(2),
               cos.const_data_ptr<Table>() + b * cos.stride(0) + t * cos.stride(2),
               sin.const_data_ptr<Table>() + b * sin.stride(0) + t * sin.stride(2), size / 2, result + row * size);
    }
  });
}

}  // namespace

bool can_fuse_rows(const at::Tensor& x) {
  return x.is_cpu() && is_supported(x.scalar_type()) && x.dim() > 0 && x.stride(-1) == 1 &&
         !(c10::GradMode::is_enabled() && x.requires_grad());
}

at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, NormWeight kind) {
  const int64_t count = x.size(-1);
  require(!weight.defined() || (weight.numel() == count && weight.scalar_type() == x.scalar_type()),
          "rms_norm: a weight of {} numbers in {} for rows of {} in {}", weight.defined() ? weight.numel() : 0,
          weight.defined() ? c10::toString(weight.scalar_type()) : "", count, c10::toString(x.scalar_type()));
  const at::Tensor rows = x.contiguous();
  const at::Tensor factors = weight.defined() ? weight.contiguous() : weight;
  const at::Tensor out = at::empty_like(rows);
  with_scalar(x.scalar_type(), [&](auto example) {
    using Scalar = decltype(example);
    const Scalar* data = rows.const_data_ptr<Scalar>();
    const Scalar* by = factors.defined() ? factors.const_data_ptr<Scalar>() : nullptr;
    Scalar* result = out.data_ptr<Scalar>();
    at::parallel_for(
        0, rows.numel() / count, std::max<int64_t>(1, kGrainElements / count), [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            normalise_row(data + row * count, by, count, static_cast<float>(eps), kind, result + row * count);
          }
        });
  });
  return out;
}

at::Tensor fused_rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  require(cos.scalar_type() == sin.scalar_type() && cos.size(-1) * 2 == x.size(3) && cos.stride(-1) == 1 &&
              sin.stride(-1) == 1,
          "rope: tables of width {} for heads of {}", cos.size(-1), x.size(3));
  const at::Tensor out = at::empty(x.sizes(), x.options());
  with_scalar(x.scalar_type(), [&](auto example) {
    with_scalar(cos.scalar_type(), [&](auto table) { turn<decltype(example), decltype(table)>(x, cos, sin, out); });
  });
  return out;
}

}  // namespace focus
