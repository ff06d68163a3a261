#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/tiled_attention.h"

namespace focus::kernels::cpu {

namespace {

// Tasks that the work is cut into at least, where the queries suffice: by shape only, since every part of a KV head's
// queries adds to key gradients of its own, which are summed in order.
constexpr int64_t kWantedTasks = 8;

struct Plan {
  const AttentionProblem& problem;
  AttentionOutput saved;
  at::Tensor grad_out;
  at::Tensor documents;            // int32 [B, Tk] contiguous, or undefined
  std::vector<ListIndex> indices;  // [B * Hg], empty for dense
  int64_t block;                   // queries handled at once
  int64_t parts;                   // tasks of one (batch row, KV head)
  int64_t part;                    // queries of a task, a multiple of block
  at::Tensor dq;                   // [B, Hq, Tq, D], q's dtype
  at::Tensor dk, dv;               // float32 [parts, B, Hkv, Tk, pad_lanes(D)]
};

template <typename T>
class BackwardWorker {
 public:
  explicit BackwardWorker(const Plan& plan)
      : plan_(plan), group_(plan.problem.group()), dim_(plan.problem.head_dim()), width_(pad_lanes(dim_)) {
    const int64_t rows = plan.block * group_;
    const int64_t tile_rows = tile_queries(group_) * group_;
    q_buffer_ = scratch_.floats(rows * width_);
    grad_out_buffer_ = scratch_.floats(rows * width_);
    dq_ = scratch_.floats(rows * width_);
    delta_ = scratch_.floats(rows);
    lse_ = scratch_.floats(rows);
    scores_ = scratch_.floats(tile_rows * kTileKeys);
    grads_ = scratch_.floats(tile_rows * kTileKeys);
    keys_ = scratch_.floats(width_ * kTileKeys);
    keys_transposed_ = scratch_.floats(dim_ * kTileKeys);
    values_transposed_ = scratch_.floats(dim_ * kTileKeys);
    q_.resize(rows);
    grad_out_.resize(rows);
    for (auto* pointers : {&q_rows_, &grad_out_rows_, &delta_rows_, &lse_rows_}) pointers->resize(tile_rows);
    for (auto* pointers : {&score_rows_, &grad_rows_, &dq_rows_}) pointers->resize(tile_rows);
    for (auto* pointers : {&key_rows_, &score_columns_, &grad_columns_}) pointers->resize(kTileKeys);
    for (auto* pointers : {&dk_rows_, &dv_rows_}) pointers->resize(kTileKeys);
    for (auto* pointers : {&key_lines_, &value_lines_}) pointers->resize(dim_);
  }

  void operator()(int64_t task) {
    const AttentionProblem& problem = plan_.problem;
    const int64_t heads = problem.batch() * problem.kv_heads();
    const int64_t batch = task % heads / problem.kv_heads();
    const int64_t kv_head = task % problem.kv_heads();
    const int64_t begin = task / heads * plan_.part;
    const int64_t end = std::min(begin + plan_.part, problem.tq());
    const HeadView<T> keys(problem.k, batch, kv_head);
    const HeadView<T> values(problem.v, batch, kv_head);
    dk_ = plan_.dk.mutable_data_ptr<float>() + task * problem.tk() * width_;
    dv_ = plan_.dv.mutable_data_ptr<float>() + task * problem.tk() * width_;
    const ListIndex* index = nullptr;
    if (!plan_.indices.empty()) {
      const int64_t set = problem.list_sets() == 1 ? 0 : kv_head;
      index = &plan_.indices[batch * problem.list_sets() + set];
    }
    const PairRule rule = pair_rule(problem, plan_.documents, batch);
    for (first_ = begin; first_ < end; first_ += plan_.block) {
      const int64_t last = std::min(first_ + plan_.block, end);
      for (int64_t h = 0; h < group_; ++h) load(batch, kv_head * group_ + h, h, last);
      std::fill_n(dq_, (last - first_) * group_ * width_, 0.0F);
      visit_tiles(rule, index, first_, last, tile_queries(group_),
                  [&](const PairTile& tile) { differentiate(tile, keys, values); });
      for (int64_t h = 0; h < group_; ++h) write(batch, kv_head * group_ + h, h, last);
    }
  }

 private:
  // Rows of q and dO, lse and delta = rowsum(dO * O) of one head.
  void load(int64_t batch, int64_t head, int64_t h, int64_t last) {
    const HeadView<T> queries(plan_.problem.q, batch, head);
    const HeadView<T> grads(plan_.grad_out, batch, head);
    const HeadView<T> outs(plan_.saved.out, batch, head);
    const float* lse =
        plan_.saved.lse.const_data_ptr<float>() + (batch * plan_.problem.heads() + head) * plan_.problem.tq();
    for (int64_t query = first_; query < last; ++query) {
      const int64_t row = (query - first_) * group_ + h;
      q_[row] = queries.padded_row(query, q_buffer_ + row * width_);
      grad_out_[row] = grads.padded_row(query, grad_out_buffer_ + row * width_);
      lse_[row] = lse[query];
      const T* out = outs.row(query);
      float delta = 0.0F;
      for (int64_t d = 0; d < dim_; ++d) delta += grad_out_[row][d] * static_cast<float>(out[d * outs.step]);
      delta_[row] = delta;
    }
  }

  void differentiate(const PairTile& tile, const HeadView<T>& keys, const HeadView<T>& values) {
    const float scale = plan_.problem.scale;
    const int64_t rows = tile.queries * group_;
    const int64_t tile_width = pad_lanes(tile.keys);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = (tile.query[r / group_] - first_) * group_ + r % group_;
      q_rows_[r] = q_[row];
      grad_out_rows_[r] = grad_out_[row];
      delta_rows_[r] = delta_ + row;
      lse_rows_[r] = lse_ + row;
      dq_rows_[r] = dq_ + row * width_;
      score_rows_[r] = scores_ + r * tile_width;
      grad_rows_[r] = grads_ + r * tile_width;
    }
    for (int64_t x = 0; x < tile.keys; ++x) {
      score_columns_[x] = scores_ + x;
      grad_columns_[x] = grads_ + x;
      dk_rows_[x] = dk_ + tile.key[x] * width_;
      dv_rows_[x] = dv_ + tile.key[x] * width_;
    }
    gather_transposed(keys, tile, keys_transposed_, key_lines_.data());
    gather_transposed(values, tile, values_transposed_, value_lines_.data());
    multiply(rows, tile_width, dim_, scale, q_rows_.data(), 1, key_lines_.data(), score_rows_.data(), false);
    multiply(rows, tile_width, dim_, 1.0F, grad_out_rows_.data(), 1, value_lines_.data(), grad_rows_.data(), false);
    softmax_gradient({tile.queries, group_, tile_width, scores_, tile.begin, tile.end, plan_.problem.softcap}, grads_,
                     lse_rows_.data(), delta_rows_.data());
    // dV += A^T dO, dK += scale * dS^T Q, dQ += scale * dS K
    multiply(tile.keys, width_, rows, 1.0F, score_columns_.data(), tile_width, grad_out_rows_.data(), dv_rows_.data(),
             true);
    multiply(tile.keys, width_, rows, scale, grad_columns_.data(), tile_width, q_rows_.data(), dk_rows_.data(), true);
    gather_rows(keys, tile, keys_, key_rows_.data());
    multiply(rows, width_, tile.keys, scale, grad_rows_.data(), 1, key_rows_.data(), dq_rows_.data(), true);
  }

  void write(int64_t batch, int64_t head, int64_t h, int64_t last) {
    T* dq = plan_.dq.mutable_data_ptr<T>() + (batch * plan_.problem.heads() + head) * plan_.problem.tq() * dim_;
    for (int64_t query = first_; query < last; ++query) {
      const float* row = dq_ + ((query - first_) * group_ + h) * width_;
      for (int64_t d = 0; d < dim_; ++d) dq[query * dim_ + d] = static_cast<T>(row[d]);
    }
  }

  const Plan& plan_;
  int64_t group_, dim_, width_;
  int64_t first_ = 0;
  Scratch scratch_;
  // Of the block, row = (query - first) * group + head.
  float *q_buffer_, *grad_out_buffer_, *dq_, *delta_, *lse_;
  std::vector<const float*> q_, grad_out_;
  // Of one tile: scores and their gradients [rows][keys], K [keys][D], K^T and V^T [D][keys].
  float *scores_, *grads_, *keys_, *keys_transposed_, *values_transposed_;
  std::vector<const float*> q_rows_, grad_out_rows_, delta_rows_, lse_rows_, key_rows_, key_lines_, value_lines_,
      score_columns_, grad_columns_;
  std::vector<float*> score_rows_, grad_rows_, dq_rows_, dk_rows_, dv_rows_;
  // This task's key gradients, [Tk][width].
  float *dk_ = nullptr, *dv_ = nullptr;
};

// [parts, B, Hkv, Tk, width] -> [B, Hkv, Tk, D], added in order of the parts.
at::Tensor join_parts(const at::Tensor& parts, int64_t dim, at::ScalarType dtype) {
  at::Tensor total = parts[0];
  for (int64_t p = 1; p < parts.size(0); ++p) total.add_(parts[p]);
  return total.narrow(-1, 0, dim).to(dtype).contiguous();
}

}  // namespace

AttentionGradient tiled_backward(const AttentionProblem& problem, const AttentionOutput& saved,
                                 const at::Tensor& grad_out) {
  const int64_t heads = problem.batch() * problem.kv_heads();
  Plan plan{problem, {saved.out, saved.lse.contiguous()}, grad_out, {}, {}, 1, 1, 1, {}, {}, {}};
  if (problem.document_start) plan.documents = problem.document_start->contiguous();
  if (problem.key_group) plan.indices = build_list_indices(*problem.key_group, *problem.probes);
  plan.block = std::min(block_queries(problem.group()), std::max<int64_t>(1, problem.tq()));
  const int64_t blocks = (problem.tq() + plan.block - 1) / plan.block;
  const int64_t wanted =
      std::clamp<int64_t>((kWantedTasks + heads - 1) / std::max<int64_t>(1, heads), 1, std::max<int64_t>(1, blocks));
  plan.part = std::max<int64_t>(1, (blocks + wanted - 1) / wanted) * plan.block;
  plan.parts = std::max<int64_t>(1, (problem.tq() + plan.part - 1) / plan.part);

  const at::TensorOptions options = problem.q.options().memory_format(at::MemoryFormat::Contiguous);
  plan.dq = empty_output(problem.q.sizes(), options);
  const std::vector<int64_t> key_sizes = {plan.parts, problem.batch(), problem.kv_heads(), problem.tk(),
                                          pad_lanes(problem.head_dim())};
  plan.dk = at::zeros(key_sizes, options.dtype(at::kFloat));
  plan.dv = at::zeros(key_sizes, options.dtype(at::kFloat));
  if (problem.tq() > 0) {
    with_dtype(problem.q.scalar_type(), [&](auto example) {
      run_tasks(heads * plan.parts, [&] { return BackwardWorker<decltype(example)>(plan); });
    });
  }
  const at::ScalarType dtype = problem.q.scalar_type();
  return {plan.dq, join_parts(plan.dk, problem.head_dim(), dtype), join_parts(plan.dv, problem.head_dim(), dtype)};
}

}  // namespace focus::kernels::cpu
