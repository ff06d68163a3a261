#include "attention/decode.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernels/cpu/strip_math.h"
#include "kernels/scratch.h"

namespace focus {

namespace {

using kernels::Scratch;
using kernels::cpu::DecodeChunk;
using kernels::cpu::StripMath;

constexpr int64_t kChunkKeys = 512;  // one step of the softmax
// Keys of a task: by their number only, so that bits do not depend on threads, and few enough that three heads of a
// short text keep two threads equally busy.
constexpr int64_t kSplitKeys = 512;
constexpr float kStart = -1e30F;  // running maximum before the first key

// One head of keys or values.
struct Rows {
  const char* data;
  int64_t stride;  // bytes from token to token
  int64_t size;    // D or Dv

  Rows(const at::Tensor& tensor, int64_t batch, int64_t head)
      : data(static_cast<const char*>(tensor.const_data_ptr()) +
             (batch * tensor.stride(0) + head * tensor.stride(1)) * tensor.element_size()),
        stride(tensor.stride(2) * tensor.element_size()),
        size(tensor.size(3)) {}
  const void* row(int64_t position) const { return data + position * stride; }
};

// Some keys of one KV head and what came of them.
struct Task {
  int64_t pair;   // batch row * KV heads + KV head
  int64_t first;  // of the chosen keys
  int64_t last;
};

class Worker {
 public:
  Worker(const StripMath& math, DecodeChunk chunk, at::ScalarType dtype)
      : math_(math), chunk_(chunk), half_(dtype == at::kHalf), keys_(kChunkKeys), values_(kChunkKeys) {
    scores_ = scratch_.floats(chunk_.heads * kChunkKeys);
    if (half_) wide_ = scratch_.floats(kChunkKeys * (chunk_.dim + chunk_.value_dim));
  }

  // State [heads] of maximum and sum, [heads][Dv] of out.
  void operator()(const Task& task, const KeyChoice& choice, const Rows& keys, const Rows& values, const float* q,
                  float* maximum, float* sum, float* out) {
    std::fill_n(maximum, chunk_.heads, kStart);
    std::fill_n(sum, chunk_.heads, 0.0F);
    std::fill_n(out, chunk_.heads * chunk_.value_dim, 0.0F);
    const auto scattered = static_cast<int64_t>(choice.scattered.size());
    for (int64_t first = task.first; first < task.last; first += kChunkKeys) {
      chunk_.count = std::min(kChunkKeys, task.last - first);
      for (int64_t x = 0; x < chunk_.count; ++x) {
        const int64_t at = first + x;
        const int64_t position =
            at < scattered ? choice.scattered[static_cast<size_t>(at)] : choice.begin + (at - scattered);
        keys_[x] = row(keys, position, x, 0);
        values_[x] = row(values, position, x, chunk_.dim * kChunkKeys);
      }
      chunk_.keys = keys_.data();
      chunk_.values = values_.data();
      math_.decode_step(chunk_, q, scores_, maximum, sum, out);
    }
  }

 private:
  const void* row(const Rows& rows, int64_t position, int64_t x, int64_t offset) {
    const void* source = rows.row(position);
    if (!half_) return source;
    float* copy = wide_ + offset + x * rows.size;
    std::copy_n(static_cast<const at::Half*>(source), rows.size, copy);
    return copy;
  }

  const StripMath& math_;
  DecodeChunk chunk_;
  bool half_;
  Scratch scratch_;
  float* scores_;
  float* wide_ = nullptr;  // float16 rows in float32: keys, then values
  std::vector<const void*> keys_, values_;
};

}  // namespace

at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const std::vector<KeyChoice>& chosen, int64_t sets, double scale, double softcap) {
  const int64_t batch = q.size(0);
  const int64_t kv_heads = keys.size(1);
  require(q.dim() == 4 && q.size(2) == 1 && kv_heads > 0 && q.size(1) % kv_heads == 0,
          "decode: one token of query heads that are a multiple of the {} KV heads was expected", kv_heads);
  require(sets == 1 || sets == kv_heads, "decode: {} list sets for {} KV heads", sets, kv_heads);
  require(keys.stride(3) == 1 && values.stride(3) == 1, "decode: keys and values must be contiguous in a row");
  const at::ScalarType dtype = keys.scalar_type();
  require((dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf) && values.scalar_type() == dtype,
          "decode: keys of dtype {} and values of {}; float32, bfloat16 or float16 was expected", c10::toString(dtype),
          c10::toString(values.scalar_type()));
  const StripMath& math = kernels::cpu::strip_math();
  const kernels::cpu::ScoreScale score(static_cast<float>(scale), static_cast<float>(softcap));
  DecodeChunk chunk;
  chunk.heads = q.size(1) / kv_heads;
  chunk.dim = keys.size(3);
  chunk.value_dim = values.size(3);
  chunk.bfloat16 = dtype == at::kBFloat16;
  chunk.factor = score.factor;
  chunk.multiplier = score.multiplier;
  chunk.cap = score.cap;

  const auto choice_of = [&](int64_t pair) -> const KeyChoice& {
    return chosen[static_cast<size_t>(pair / kv_heads * sets + (sets == 1 ? 0 : pair % kv_heads))];
  };
  std::vector<Task> tasks;
  for (int64_t pair = 0; pair < batch * kv_heads; ++pair) {
    const int64_t count = choice_of(pair).count();
    for (int64_t first = 0; first < count; first += kSplitKeys) {
      tasks.push_back({pair, first, std::min(first + kSplitKeys, count)});
    }
  }
  const int64_t state = chunk.heads * (2 + chunk.value_dim);  // floats of a task: maximum, sum, out
  Scratch scratch;
  float* states = scratch.floats(static_cast<int64_t>(tasks.size()) * state);
  const at::Tensor query = q.to(at::kFloat).contiguous();
  const float* query_data = query.const_data_ptr<float>();
  at::parallel_for(0, std::ssize(tasks), 1, [&](int64_t begin, int64_t end) {
    Worker worker(math, chunk, dtype);
    for (int64_t t = begin; t < end; ++t) {
      const Task& task = tasks[static_cast<size_t>(t)];
      const int64_t b = task.pair / kv_heads;
      const int64_t h = task.pair % kv_heads;
      float* s = states + t * state;
      worker(task, choice_of(task.pair), Rows(keys, b, h), Rows(values, b, h),
             query_data + task.pair * chunk.heads * chunk.dim, s, s + chunk.heads, s + 2 * chunk.heads);
    }
  });

  // Joins the tasks of a KV head in order.
  const at::Tensor out = at::zeros({batch, q.size(1), 1, chunk.value_dim}, query.options());
  float* out_data = out.mutable_data_ptr<float>();
  for (size_t first = 0; first < tasks.size();) {
    size_t last = first;
    while (last < tasks.size() && tasks[last].pair == tasks[first].pair) ++last;
    for (int64_t h = 0; h < chunk.heads; ++h) {
      float top = kStart;
      for (size_t t = first; t < last; ++t) top = std::max(top, states[static_cast<int64_t>(t) * state + h]);
      float* row = out_data + (tasks[first].pair * chunk.heads + h) * chunk.value_dim;
      float total = 0.0F;
      for (size_t t = first; t < last; ++t) {
        const float* s = states + static_cast<int64_t>(t) * state;
        const float share = std::exp2(s[h] - top);
        total += share * s[chunk.heads + h];
        const float* part = s + 2 * chunk.heads + h * chunk.value_dim;
        for (int64_t d = 0; d < chunk.value_dim; ++d) row[d] += share * part[d];
      }
      for (int64_t d = 0; d < chunk.value_dim; ++d) row[d] /= total;
    }
    first = last;
  }
  return out.to(q.scalar_type());
}

}  // namespace focus
