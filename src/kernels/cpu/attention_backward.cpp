#include <limits>
#include <numbers>

#include "kernels/cpu/attention_strips.h"
#include "kernels/cpu/strip_attention.h"

namespace focus::kernels::cpu {

namespace {

constexpr int64_t kTileStrips = 4;  // strips whose weights meet a run of keys together
constexpr int64_t kRunKeys = 72;    // such a run
constexpr int64_t kBlockRows = 4096;
// Tasks that the work is cut into at least, where the queries suffice and memory allows: by shape only, since every
// part of a KV head's queries adds to key gradients of its own, which are summed in order.
constexpr int64_t kWantedTasks = 8;
constexpr int64_t kMostPartFloats = int64_t{1} << 26;  // of dk, in all parts together; beyond it one part
static_assert(kRunKeys % kRowGroup == 0);

struct Plan {
  const AttentionProblem& problem;
  const StripMath& math;
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
      : plan_(plan),
        math_(plan.math),
        group_(plan.problem.group()),
        dim_(plan.problem.head_dim()),
        width_(pad_lanes(dim_)),
        lanes_(plan.math.lanes),
        strip_stride_((kRunKeys + kKeySlack) * lanes_),
        scale_(plan.problem.scale, plan.problem.softcap),
        keys_(scratch_, kRunKeys, width_),
        values_(scratch_, kRunKeys, width_) {
    const int64_t rows = plan.block * group_;
    q_buffer_ = scratch_.floats(rows * width_);
    grad_out_buffer_ = scratch_.floats(rows * width_);
    dq_ = scratch_.floats(rows * width_);
    delta_ = scratch_.floats(rows);
    lse_ = scratch_.floats(rows);
    q_columns_ = scratch_.floats(kTileStrips * dim_ * lanes_);
    grad_out_columns_ = scratch_.floats(kTileStrips * dim_ * lanes_);
    weights_ = scratch_.floats(kTileStrips * strip_stride_);
    changes_ = scratch_.floats(kTileStrips * strip_stride_);
    zeros_ = scratch_.floats(width_);
    spare_ = scratch_.floats(width_);
    std::fill_n(zeros_, width_, 0.0F);
    std::fill_n(spare_, width_, 0.0F);
    q_.resize(rows);
    grad_out_.resize(rows);
    for (auto* pointers : {&q_rows_, &grad_out_rows_}) pointers->resize(kTileStrips * lanes_);
    for (auto* pointers : {&dk_rows_, &dv_rows_}) pointers->resize(kRunKeys);
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
      visit_tiles(rule, index, {first_, last, group_, kTileStrips * lanes_},
                  [&](const RowTile& tile) { differentiate(tile, keys, values); });
      for (int64_t h = 0; h < group_; ++h) write(batch, kv_head * group_ + h, h, last);
    }
  }

 private:
  // Rows of one head of the block: q, dO, lse in base 2, delta = sum_d dO * O. Rows without keys get lse 0; nothing of
  // them is used.
  void load(int64_t batch, int64_t head, int64_t h, int64_t last) {
    const HeadView<T> queries(plan_.problem.q, batch, head);
    const HeadView<T> grads(plan_.grad_out, batch, head);
    const HeadView<T> outs(plan_.saved.out, batch, head);
    const float* lse =
        plan_.saved.lse.const_data_ptr<float>() + (batch * plan_.problem.heads() + head) * plan_.problem.tq();
    for (int64_t query = first_; query < last; ++query) {
      const int64_t row = (query - first_) * group_ + h;
      q_[row] = queries.padded_row(math_, query, q_buffer_ + row * width_);
      grad_out_[row] = grads.padded_row(math_, query, grad_out_buffer_ + row * width_);
      const bool empty = lse[query] == -std::numeric_limits<float>::infinity();
      lse_[row] = empty ? 0.0F : lse[query] * std::numbers::log2e_v<float>;
      const T* out = outs.row(query);
      float delta = 0.0F;
      for (int64_t d = 0; d < dim_; ++d) delta += grad_out_[row][d] * static_cast<float>(out[d * outs.step]);
      delta_[row] = delta;
    }
  }

  void differentiate(const RowTile& tile, const HeadView<T>& keys, const HeadView<T>& values) {
    const auto [low, high] = tile.span(0, tile.rows);
    if (low >= high) return;
    strips_ = (tile.rows + lanes_ - 1) / lanes_;
    for (int64_t x = 0; x < strips_ * lanes_; ++x) {
      q_rows_[x] = x < tile.rows ? q_[tile.row[x]] : zeros_;
      grad_out_rows_[x] = x < tile.rows ? grad_out_[tile.row[x]] : zeros_;
    }
    for (int64_t first = 0; first < tile.rows; first += lanes_) {
      math_.transpose(q_rows_.data() + first, dim_, q_columns_ + first * dim_);
      math_.transpose(grad_out_rows_.data() + first, dim_, grad_out_columns_ + first * dim_);
    }
    for (int64_t run = low; run < high; run += kRunKeys) {
      const int64_t run_end = std::min(run + kRunKeys, high);
      keys_.load(math_, keys, tile, run, run_end);
      values_.load(math_, values, tile, run, run_end);
      bool any = false;
      for (int64_t strip = 0; strip < strips_; ++strip) any = weigh(tile, strip, run, run_end) || any;
      if (!any) continue;
      for (int64_t x = 0; x < kRunKeys; ++x) {
        const bool some = run + x < run_end;
        const int64_t position = some && tile.keys != nullptr ? tile.keys[run + x] : run + x;
        dk_rows_[x] = some ? dk_ + position * width_ : spare_;
        dv_rows_[x] = some ? dv_ + position * width_ : spare_;
      }
      // dV += A^T dO, dK += dS^T Q
      const int64_t count = run_end - run;
      math_.add_outer(count, weights_, strips_, strip_stride_, begin_, end_, grad_out_rows_.data(), width_,
                      dv_rows_.data());
      math_.add_outer(count, changes_, strips_, strip_stride_, begin_, end_, q_rows_.data(), width_, dk_rows_.data());
    }
  }

  // Weights A and score gradients dS of one strip against the keys [run, run_end), and dQ += dS K. Leaves zeros around
  // the strip's own keys up to a multiple of kRowGroup. False if the strip meets none of the keys.
  bool weigh(const RowTile& tile, int64_t strip, int64_t run, int64_t run_end) {
    const int64_t first = strip * lanes_;
    auto [begin, end] = tile.span(first, first + lanes_);
    begin = std::max(begin, run) - run;
    end = std::min(end, run_end) - run;
    begin_[strip] = static_cast<int32_t>(std::min(begin, end));
    end_[strip] = static_cast<int32_t>(end);
    if (begin >= end) return false;
    lane_.set(tile, first, lanes_, run + begin, run + end);
    float lse[StripLanes::kMost];
    float delta[StripLanes::kMost];
    float* dq[StripLanes::kMost];
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      const bool some = first + lane < tile.rows;
      const int64_t row = some ? tile.row[first + lane] : 0;
      lse[lane] = some ? lse_[row] : 0.0F;
      delta[lane] = some ? delta_[row] : 0.0F;
      dq[lane] = some ? dq_ + row * width_ : spare_;
    }
    float* weights = weights_ + strip * strip_stride_;
    float* changes = changes_ + strip * strip_stride_;
    const StripScores scores{end - begin, weights + begin * lanes_, lane_.begin,
                             lane_.end,   scale_.multiplier,        scale_.cap};
    StripScores change = scores;
    change.scores = changes + begin * lanes_;
    math_.products(scores, q_columns_ + first * dim_, dim_, keys_.at(begin), scale_.factor);
    math_.products(change, grad_out_columns_ + first * dim_, dim_, values_.at(begin), 1.0F);
    math_.softmax_gradient(scores, change.scores, lse, delta, plan_.problem.scale);
    math_.add_rows(change, nullptr, keys_.at(begin), width_, dq);
    const int64_t floor = begin / kRowGroup * kRowGroup;
    const int64_t ceiling = (end + kRowGroup - 1) / kRowGroup * kRowGroup;
    for (float* cells : {weights, changes}) {
      std::fill(cells + floor * lanes_, cells + begin * lanes_, 0.0F);
      std::fill(cells + end * lanes_, cells + ceiling * lanes_, 0.0F);
    }
    return true;
  }

  void write(int64_t batch, int64_t head, int64_t h, int64_t last) {
    T* dq = plan_.dq.mutable_data_ptr<T>() + (batch * plan_.problem.heads() + head) * plan_.problem.tq() * dim_;
    for (int64_t query = first_; query < last; ++query) {
      const float* row = dq_ + ((query - first_) * group_ + h) * width_;
      for (int64_t d = 0; d < dim_; ++d) dq[query * dim_ + d] = static_cast<T>(row[d]);
    }
  }

  const Plan& plan_;
  const StripMath& math_;
  int64_t group_, dim_, width_, lanes_, strip_stride_;
  ScoreScale scale_;
  int64_t first_ = 0, strips_ = 0;
  Scratch scratch_;
  // Of the block, row = (query - first) * group + head.
  float *q_buffer_, *grad_out_buffer_, *dq_, *delta_, *lse_;
  std::vector<const float*> q_, grad_out_;
  // Of one tile: Q^T and dO^T by strip [strips][D][lanes]; A and dS by strip [strips][keys][lanes].
  float *q_columns_, *grad_out_columns_, *weights_, *changes_;
  float *zeros_, *spare_;
  int32_t begin_[kTileStrips], end_[kTileStrips];
  StripLanes lane_;
  KeyRows keys_, values_;
  std::vector<const float*> q_rows_, grad_out_rows_;
  std::vector<float*> dk_rows_, dv_rows_;
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

AttentionGradient strip_backward(const AttentionProblem& problem, const AttentionOutput& saved,
                                 const at::Tensor& grad_out) {
  const int64_t heads = problem.batch() * problem.kv_heads();
  Plan plan{problem, strip_math(), {saved.out, saved.lse.contiguous()}, grad_out, {}, {}, 1, 1, 1, {}, {}, {}};
  if (problem.document_start) plan.documents = problem.document_start->contiguous();
  if (problem.key_group) plan.indices = build_list_indices(*problem.key_group, *problem.probes);
  const int64_t floats = std::max<int64_t>(1, heads * problem.tk() * pad_lanes(problem.head_dim()));
  const int64_t most_parts = std::clamp<int64_t>(kMostPartFloats / floats, 1, kWantedTasks);
  const int64_t wanted = std::clamp<int64_t>((kWantedTasks + heads - 1) / std::max<int64_t>(1, heads), 1, most_parts);
  plan.block =
      std::clamp<int64_t>((problem.tq() + wanted - 1) / wanted, 1, std::max<int64_t>(1, kBlockRows / problem.group()));
  const int64_t blocks = (problem.tq() + plan.block - 1) / plan.block;
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
