#include <cmath>
#include <limits>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/tiled_attention.h"

namespace focus::kernels::cpu {

namespace {

// What all tasks read.
struct Plan {
  const AttentionProblem& problem;
  at::Tensor documents;            // int32 [B, Tk] contiguous, or undefined
  std::vector<ListIndex> indices;  // [B * Hg], empty for dense
  int64_t block;                   // queries of a task
  int64_t blocks;                  // tasks of one (batch row, KV head)
};

// A thread's buffers, and the work on one (batch row, KV head, block of queries).
template <typename T>
class ForwardWorker {
 public:
  ForwardWorker(const Plan& plan, AttentionOutput& output)
      : plan_(plan),
        output_(output),
        group_(plan.problem.group()),
        dim_(plan.problem.head_dim()),
        width_(pad_lanes(dim_)),
        tile_rows_(tile_queries(group_) * group_) {
    const int64_t rows = plan.block * group_;
    q_buffer_ = scratch_.floats(rows * width_);
    out_ = scratch_.floats(rows * width_);
    maximum_ = scratch_.floats(rows);
    sum_ = scratch_.floats(rows);
    scores_ = scratch_.floats(tile_rows_ * kTileKeys);
    keys_ = scratch_.floats(dim_ * kTileKeys);
    values_ = scratch_.floats(width_ * kTileKeys);
    q_.resize(rows);
    key_rows_.resize(dim_);
    value_rows_.resize(kTileKeys);
    for (auto* rows_of_tile : {&score_rows_, &out_rows_, &maximum_rows_, &sum_rows_}) rows_of_tile->resize(tile_rows_);
    q_rows_.resize(tile_rows_);
  }

  void operator()(int64_t task) {
    const AttentionProblem& problem = plan_.problem;
    // Blocks vary slowest, so that tasks taken from the end go from long to short.
    const int64_t heads = problem.batch() * problem.kv_heads();
    const int64_t first = task / heads * plan_.block;
    const int64_t last = std::min(first + plan_.block, problem.tq());
    const int64_t batch = task % heads / problem.kv_heads();
    const int64_t kv_head = task % problem.kv_heads();
    first_ = first;

    for (int64_t h = 0; h < group_; ++h) {
      const HeadView<T> queries(problem.q, batch, kv_head * group_ + h);
      for (int64_t query = first; query < last; ++query) {
        const int64_t row = (query - first) * group_ + h;
        q_[row] = queries.padded_row(query, q_buffer_ + row * width_);
      }
    }
    const int64_t rows = (last - first) * group_;
    std::fill_n(out_, rows * width_, 0.0F);
    std::fill_n(maximum_, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sum_, rows, 0.0F);

    const HeadView<T> keys(problem.k, batch, kv_head);
    const HeadView<T> values(problem.v, batch, kv_head);
    const ListIndex* index = nullptr;
    if (!plan_.indices.empty()) {
      const int64_t set = problem.list_sets() == 1 ? 0 : kv_head;
      index = &plan_.indices[batch * problem.list_sets() + set];
    }
    visit_tiles(pair_rule(problem, plan_.documents, batch), index, first, last, tile_queries(group_),
                [&](const PairTile& tile) { attend(tile, keys, values); });
    for (int64_t h = 0; h < group_; ++h) write(batch, kv_head * group_ + h, h, last);
  }

 private:
  void attend(const PairTile& tile, const HeadView<T>& keys, const HeadView<T>& values) {
    const int64_t rows = tile.queries * group_;
    const int64_t tile_width = pad_lanes(tile.keys);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = (tile.query[r / group_] - first_) * group_ + r % group_;
      q_rows_[r] = q_[row];
      score_rows_[r] = scores_ + r * tile_width;
      out_rows_[r] = out_ + row * width_;
      maximum_rows_[r] = maximum_ + row;
      sum_rows_[r] = sum_ + row;
    }
    gather_transposed(keys, tile, keys_, key_rows_.data());
    multiply(rows, tile_width, dim_, plan_.problem.scale, q_rows_.data(), 1, key_rows_.data(), score_rows_.data(),
             false);
    softmax_step({tile.queries, group_, tile_width, scores_, tile.begin, tile.end, plan_.problem.softcap},
                 maximum_rows_.data(), sum_rows_.data(), out_rows_.data(), width_);
    gather_rows(values, tile, values_, value_rows_.data());
    multiply(rows, width_, tile.keys, 1.0F, score_rows_.data(), 1, value_rows_.data(), out_rows_.data(), true);
  }

  // Normalises the states of one head and writes out and lse.
  void write(int64_t batch, int64_t head, int64_t h, int64_t last) {
    const int64_t base = (batch * plan_.problem.heads() + head) * plan_.problem.tq();
    T* out = output_.out.mutable_data_ptr<T>() + base * dim_;
    float* lse = output_.lse.mutable_data_ptr<float>() + base;
    for (int64_t query = first_; query < last; ++query) {
      const int64_t row = (query - first_) * group_ + h;
      const bool empty = maximum_[row] == -std::numeric_limits<float>::infinity();
      const float factor = empty ? 0.0F : 1.0F / sum_[row];
      lse[query] = empty ? maximum_[row] : maximum_[row] + std::log(sum_[row]);
      for (int64_t d = 0; d < dim_; ++d) out[query * dim_ + d] = static_cast<T>(out_[row * width_ + d] * factor);
    }
  }

  const Plan& plan_;
  AttentionOutput& output_;
  int64_t group_, dim_, width_, tile_rows_;
  int64_t first_ = 0;
  Scratch scratch_;
  // States of the block, row = (query - first) * group + head; then the buffers of one tile.
  float *q_buffer_, *out_, *maximum_, *sum_, *scores_, *keys_, *values_;
  std::vector<const float*> q_, q_rows_, key_rows_, value_rows_;
  std::vector<float*> score_rows_, out_rows_, maximum_rows_, sum_rows_;
};

}  // namespace

AttentionOutput tiled_forward(const AttentionProblem& problem) {
  Plan plan{problem, {}, {}, std::min(block_queries(problem.group()), problem.tq()), 0};
  if (problem.document_start) plan.documents = problem.document_start->contiguous();
  if (problem.key_group) plan.indices = build_list_indices(*problem.key_group, *problem.probes);
  AttentionOutput output;
  output.out = empty_output(problem.q.sizes(), problem.q.options().memory_format(at::MemoryFormat::Contiguous));
  output.lse = empty_output({problem.batch(), problem.heads(), problem.tq()}, problem.q.options().dtype(at::kFloat));
  if (problem.tq() == 0) return output;
  plan.blocks = (problem.tq() + plan.block - 1) / plan.block;
  const int64_t tasks = problem.batch() * problem.kv_heads() * plan.blocks;
  with_dtype(problem.q.scalar_type(),
             [&](auto example) { run_tasks(tasks, [&] { return ForwardWorker<decltype(example)>(plan, output); }); });
  return output;
}

}  // namespace focus::kernels::cpu
