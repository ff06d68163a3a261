#include "kernels/pairs.h"

#include "attention/checks.h"
#include "attention/op.h"

namespace focus {

PairCount count_pairs(int64_t batch, int64_t tq, int64_t tk, const AttentionParams& params) {
  check_pairs(batch, -1, tq, tk, params);
  std::vector<kernels::ListIndex> indices;
  if (params.key_group) indices = kernels::build_list_indices(params.key_group->cpu(), params.probes->cpu());
  const int64_t sets = params.key_group ? params.key_group->size(1) : 1;
  at::Tensor documents;  // int32 [B, Tk]
  if (params.document_start) documents = params.document_start->cpu().contiguous();

  PairCount count;
  for (int64_t b = 0; b < batch; ++b) {
    kernels::PairRule rule;
    rule.offset = tk - tq;
    rule.window = params.key_group ? params.window : tk;
    if (documents.defined()) rule.document_start = documents.const_data_ptr<int32_t>() + b * tk;
    for (int64_t query = 0; query < tq; ++query) {
      const int64_t i = rule.position(query);
      count.causal += sets * std::max<int64_t>(0, i + 1 - rule.first(i));
    }
    rule.layer_window = params.layer_window;
    for (int64_t query = 0; query < tq; ++query) {
      const int64_t i = rule.position(query);
      count.kept += sets * std::max<int64_t>(0, i + 1 - std::max(rule.first(i), rule.window_begin(i)));
    }
    if (indices.empty()) continue;
    for (int64_t set = 0; set < sets; ++set) {
      const kernels::ListIndex& index = indices[b * sets + set];
      for (int64_t list = 0; list < index.lists(); ++list) {
        const int32_t* keys = index.keys(list);
        for (int64_t x = 0; x < index.query_count(list); ++x) {
          const auto [begin, end] =
              rule.list_range(rule.position(index.queries(list)[x]), keys, keys + index.key_count(list));
          count.kept += std::max<int64_t>(0, end - begin);
        }
      }
    }
  }
  return count;
}

}  // namespace focus
