#include "kernels/pairs.h"

#include <ATen/Parallel.h>

#include "base/error.h"

namespace focus::kernels {

namespace {

void check_id(int32_t id, const char* what) {
  require(id >= -1 && id < kMaxLists, "attention: {} holds list id {}, expected -1 or 0..{}", what, id, kMaxLists - 1);
}

// Turns counts [n + 1] (count of list i in cell i + 1) into begins.
void accumulate(std::vector<int64_t>& begin) {
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
}

}  // namespace

ListIndex::ListIndex(const int32_t* key_group, int64_t tk, const int32_t* probes, int64_t tq, int64_t slots) {
  int32_t last = -1;
  for (int64_t j = 0; j < tk; ++j) {
    check_id(key_group[j], "key_group");
    last = std::max(last, key_group[j]);
  }
  const size_t lists = static_cast<size_t>(int64_t{last} + 1);
  key_begin_.assign(lists + 1, 0);
  for (int64_t j = 0; j < tk; ++j) {
    if (key_group[j] >= 0) ++key_begin_[key_group[j] + 1];
  }
  accumulate(key_begin_);
  keys_.resize(key_begin_.back());
  std::vector<int64_t> next(key_begin_.begin(), key_begin_.end() - 1);
  for (int64_t j = 0; j < tk; ++j) {
    if (key_group[j] >= 0) keys_[next[key_group[j]]++] = static_cast<int32_t>(j);
  }

  query_begin_.assign(lists + 1, 0);
  std::vector<int64_t> seen(lists, -1);  // the last query that probed a list
  for (int64_t i = 0; i < tq; ++i) {
    for (int64_t p = 0; p < slots; ++p) {
      const int32_t id = probes[i * slots + p];
      check_id(id, "probes");
      if (id < 0 || id > last || seen[id] == i) continue;
      seen[id] = i;
      ++query_begin_[id + 1];
    }
  }
  accumulate(query_begin_);
  queries_.resize(query_begin_.back());
  next.assign(query_begin_.begin(), query_begin_.end() - 1);
  std::fill(seen.begin(), seen.end(), -1);
  for (int64_t i = 0; i < tq; ++i) {
    for (int64_t p = 0; p < slots; ++p) {
      const int32_t id = probes[i * slots + p];
      if (id < 0 || id > last || seen[id] == i) continue;
      seen[id] = i;
      queries_[next[id]++] = static_cast<int32_t>(i);
    }
  }
}

std::vector<ListIndex> build_list_indices(const at::Tensor& key_group, const at::Tensor& probes) {
  const at::Tensor keys = key_group.contiguous();  // [B, Hg, Tk]
  const at::Tensor slots = probes.contiguous();    // [B, Hg, Tq, P]
  const int64_t sets = keys.size(0) * keys.size(1);
  const int64_t tk = keys.size(2);
  const int64_t tq = slots.size(2);
  const int64_t width = slots.size(3);
  std::vector<ListIndex> indices(sets);
  at::parallel_for(0, sets, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      indices[s] = ListIndex(keys.const_data_ptr<int32_t>() + s * tk, tk,
                             slots.const_data_ptr<int32_t>() + s * tq * width, tq, width);
    }
  });
  return indices;
}

}  // namespace focus::kernels
