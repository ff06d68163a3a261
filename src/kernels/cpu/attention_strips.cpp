#include "kernels/cpu/attention_strips.h"

#include <limits>

namespace focus::kernels::cpu {

namespace {

// Collects rows until a tile is full.
class TileCollector {
 public:
  TileCollector(const QueryBlock& block, c10::function_ref<void(const RowTile&)> visit) : block_(block), visit_(visit) {
    row_.reserve(block.most);
    begin_.reserve(block.most);
    end_.reserve(block.most);
  }

  void add(int64_t query, int64_t begin, int64_t end, const int32_t* keys) {
    for (int64_t head = 0; head < block_.group; ++head) {
      row_.push_back(static_cast<int32_t>((query - block_.first) * block_.group + head));
      begin_.push_back(begin);
      end_.push_back(end);
      if (static_cast<int64_t>(row_.size()) == block_.most) flush(keys);
    }
  }

  void flush(const int32_t* keys) {
    if (!row_.empty()) visit_({static_cast<int64_t>(row_.size()), row_.data(), begin_.data(), end_.data(), keys});
    row_.clear();
    begin_.clear();
    end_.clear();
  }

 private:
  const QueryBlock& block_;
  c10::function_ref<void(const RowTile&)> visit_;
  std::vector<int32_t> row_;
  std::vector<int64_t> begin_, end_;
};

}  // namespace

std::pair<int64_t, int64_t> RowTile::span(int64_t from, int64_t to) const {
  std::pair<int64_t, int64_t> span{std::numeric_limits<int64_t>::max(), 0};
  for (int64_t x = from; x < std::min(to, rows); ++x) {
    if (begin[x] >= end[x]) continue;
    span.first = std::min(span.first, begin[x]);
    span.second = std::max(span.second, end[x]);
  }
  return span;
}

void visit_tiles(const PairRule& rule, const ListIndex* index, const QueryBlock& block,
                 c10::function_ref<void(const RowTile&)> visit) {
  TileCollector collector(block, visit);
  // Rows without a key stay in, so that tiles do not depend on where the block begins.
  for (int64_t query = block.first; query < block.last; ++query) {
    const int64_t i = rule.position(query);
    collector.add(query, std::max(rule.first(i), rule.window_begin(i)), i + 1, nullptr);
  }
  collector.flush(nullptr);
  if (index == nullptr) return;
  for (int64_t list = 0; list < index->lists(); ++list) {
    const int32_t* queries = index->queries(list);
    const int32_t* queries_end = queries + index->query_count(list);
    const int32_t* keys = index->keys(list);
    const int32_t* keys_end = keys + index->key_count(list);
    if (keys == keys_end) continue;
    const int32_t* query = std::lower_bound(queries, queries_end, block.first);
    if (query == queries_end || *query >= block.last) continue;
    const int64_t count = keys_end - keys;
    int64_t end = std::lower_bound(keys, keys_end, rule.window_begin(rule.position(*query))) - keys;
    for (; query < queries_end && *query < block.last; ++query) {
      // Queries ascend, so the window's beginning moves forward only.
      const int64_t i = rule.position(*query);
      const int64_t window_begin = rule.window_begin(i);
      while (end < count && keys[end] < window_begin) ++end;
      const int64_t first = rule.first(i);
      const int64_t begin = first <= keys[0] ? 0 : std::lower_bound(keys, keys + end, first) - keys;
      if (begin < end) collector.add(*query, begin, end, keys);
    }
    collector.flush(keys);
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

void StripLanes::set(const RowTile& tile, int64_t first, int64_t lanes, int64_t from, int64_t to) {
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const int64_t x = first + lane;
    const bool some = x < tile.rows;
    begin[lane] = some ? static_cast<int32_t>(std::clamp(tile.begin[x], from, to) - from) : 0;
    end[lane] = some ? static_cast<int32_t>(std::clamp(tile.end[x], from, to) - from) : 0;
  }
}

}  // namespace focus::kernels::cpu
