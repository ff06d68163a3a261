#include "kernels/cpu/attention_tiles.h"

#include <numeric>

namespace focus::kernels::cpu {

namespace {

// Collects up to `most` queries that have keys, then cuts their common span of keys into tiles.
class TileCutter {
 public:
  TileCutter(int64_t most, c10::function_ref<void(const PairTile&)> visit)
      : most_(most), visit_(visit), clipped_begin_(most), clipped_end_(most), positions_(kTileKeys) {
    query_.reserve(most);
    begin_.reserve(most);
    end_.reserve(most);
  }

  // Keys begin .. end - 1 of the current key array.
  void add(int64_t query, int64_t begin, int64_t end, const int32_t* keys) {
    if (begin >= end) return;
    query_.push_back(static_cast<int32_t>(query));
    begin_.push_back(begin);
    end_.push_back(end);
    if (static_cast<int64_t>(query_.size()) == most_) flush(keys);
  }

  // keys null: the key array is 0, 1, 2, ...
  void flush(const int32_t* keys) {
    if (query_.empty()) return;
    const int64_t low = *std::min_element(begin_.begin(), begin_.end());
    const int64_t high = *std::max_element(end_.begin(), end_.end());
    for (int64_t start = low; start < high; start += kTileKeys) {
      const int64_t count = std::min(kTileKeys, high - start);
      bool any = false;
      for (size_t x = 0; x < query_.size(); ++x) {
        clipped_begin_[x] = static_cast<int32_t>(std::clamp<int64_t>(begin_[x] - start, 0, count));
        clipped_end_[x] = static_cast<int32_t>(std::clamp<int64_t>(end_[x] - start, 0, count));
        any = any || clipped_begin_[x] < clipped_end_[x];
      }
      if (!any) continue;
      if (keys == nullptr) std::iota(positions_.begin(), positions_.end(), static_cast<int32_t>(start));
      visit_({static_cast<int64_t>(query_.size()), query_.data(), clipped_begin_.data(), clipped_end_.data(), count,
              keys == nullptr ? positions_.data() : keys + start});
    }
    query_.clear();
    begin_.clear();
    end_.clear();
  }

 private:
  int64_t most_;
  c10::function_ref<void(const PairTile&)> visit_;
  std::vector<int32_t> query_;
  std::vector<int64_t> begin_, end_;
  std::vector<int32_t> clipped_begin_, clipped_end_, positions_;
};

}  // namespace

void visit_tiles(const PairRule& rule, const ListIndex* index, int64_t first, int64_t last, int64_t most,
                 c10::function_ref<void(const PairTile&)> visit) {
  TileCutter cutter(most, visit);
  for (int64_t query = first; query < last; ++query) {
    const int64_t i = rule.position(query);
    cutter.add(query, std::max(rule.first(i), rule.window_begin(i)), i + 1, nullptr);
  }
  cutter.flush(nullptr);
  if (index == nullptr) return;
  for (int64_t list = 0; list < index->lists(); ++list) {
    const int32_t* queries = index->queries(list);
    const int32_t* queries_end = queries + index->query_count(list);
    const int32_t* keys = index->keys(list);
    const int32_t* keys_end = keys + index->key_count(list);
    if (keys == keys_end) continue;
    for (const int32_t* query = std::lower_bound(queries, queries_end, first); query < queries_end && *query < last;
         ++query) {
      const auto [begin, end] = rule.list_range(rule.position(*query), keys, keys_end);
      cutter.add(*query, begin, end, keys);
    }
    cutter.flush(keys);
  }
}

PairRule pair_rule(const AttentionProblem& problem, const at::Tensor& documents, int64_t batch) {
  PairRule rule;
  rule.offset = problem.tk() - problem.tq();
  rule.window = problem.key_group ? problem.window : problem.tk();
  rule.layer_window = problem.layer_window;
  if (documents.defined()) rule.document_start = documents.const_data_ptr<int32_t>() + batch * problem.tk();
  return rule;
}

}  // namespace focus::kernels::cpu
