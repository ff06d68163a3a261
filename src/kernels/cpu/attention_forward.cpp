#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "kernels/cpu/attention_strips.h"
#include "kernels/cpu/strip_attention.h"

namespace focus::kernels::cpu {

namespace {

constexpr int64_t kTileStrips = 8;    // strips that share a run of keys while it is in the cache
constexpr int64_t kPartKeys = 512;    // such a run
constexpr int64_t kChunkKeys = 128;   // keys of one step of the softmax
constexpr int64_t kLastChunk = 192;   // a window's keys up to this many are one step
constexpr int64_t kMostRows = 1024;   // rows whose states a task holds
constexpr int64_t kTasksAThread = 4;  // for an even load
constexpr float kStart = -1e30F;      // running maximum of a row before its first key

// What all tasks read.
struct Plan {
  const AttentionProblem& problem;
  const StripMath& math;
  at::Tensor documents;            // int32 [B, Tk] contiguous, or undefined
  std::vector<ListIndex> indices;  // [B * Hg], empty for dense
  int64_t block;                   // queries of a task
  int64_t blocks;                  // tasks of one (batch row, KV head)
};

// Queries of a task: few enough that all threads have work, else many, since a list's queries in a block share strips.
// Whole tiles, so that the bits of a row do not depend on it.
int64_t block_queries(const AttentionProblem& problem, int64_t tile_rows) {
  const int64_t heads = problem.batch() * problem.kv_heads();
  const int64_t threads = at::get_num_threads();
  const int64_t wanted = threads == 1 ? 1 : (kTasksAThread * threads + heads - 1) / std::max<int64_t>(heads, 1);
  const int64_t step = tile_rows / std::gcd(tile_rows, problem.group());
  const int64_t most = std::max<int64_t>(1, kMostRows / problem.group() / step);
  const int64_t even = (problem.tq() + wanted * step - 1) / (wanted * step);
  return std::clamp<int64_t>(even, 1, most) * step;
}

// A thread's buffers, and the work on one (batch row, KV head, block of queries).
template <typename T>
class ForwardWorker {
 public:
  ForwardWorker(const Plan& plan, AttentionOutput& output)
      : plan_(plan),
        math_(plan.math),
        output_(output),
        group_(plan.problem.group()),
        dim_(plan.problem.head_dim()),
        width_(pad_lanes(dim_)),
        lanes_(plan.math.lanes),
        scale_(plan.problem.scale, plan.problem.softcap),
        keys_(scratch_, kPartKeys, width_),
        values_(scratch_, kPartKeys, width_) {
    const int64_t rows = std::min(plan.block, plan.problem.tq()) * group_;
    out_ = scratch_.floats(rows * width_);
    maximum_ = scratch_.floats(rows);
    sum_ = scratch_.floats(rows);
    columns_ = scratch_.floats(kTileStrips * dim_ * lanes_);
    scores_ = scratch_.floats((kLastChunk + kKeySlack) * lanes_);
    spare_ = scratch_.floats(width_);
    std::fill_n(spare_, width_, 0.0F);
    q_.resize(rows);
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
        q_[row] = query_row(queries, query, row);
      }
    }
    const int64_t rows = (last - first) * group_;
    std::fill_n(out_, rows * width_, 0.0F);
    std::fill_n(maximum_, rows, kStart);
    std::fill_n(sum_, rows, 0.0F);

    const HeadView<T> keys(problem.k, batch, kv_head);
    const HeadView<T> values(problem.v, batch, kv_head);
    const ListIndex* index = nullptr;
    if (!plan_.indices.empty()) {
      const int64_t set = problem.list_sets() == 1 ? 0 : kv_head;
      index = &plan_.indices[batch * problem.list_sets() + set];
    }
    visit_tiles(pair_rule(problem, plan_.documents, batch), index, {first, last, group_, kTileStrips * lanes_},
                [&](const RowTile& tile) { attend(tile, keys, values); });
    for (int64_t h = 0; h < group_; ++h) write(batch, kv_head * group_ + h, h, last);
  }

 private:
  // A row of q in float32; copies go to a buffer that is made when it is first needed.
  const float* query_row(const HeadView<T>& queries, int64_t query, int64_t row) {
    if constexpr (std::is_same_v<T, float>) {
      if (queries.step == 1) return queries.row(query);
    }
    if (q_buffer_ == nullptr) q_buffer_ = scratch_.floats(static_cast<int64_t>(q_.size()) * width_);
    return queries.padded_row(math_, query, q_buffer_ + row * width_);
  }

  void attend(const RowTile& tile, const HeadView<T>& keys, const HeadView<T>& values) {
    const auto [low, high] = tile.span(0, tile.rows);
    if (low >= high) return;
    for (int64_t first = 0; first < tile.rows; first += lanes_) {
      const float* rows[StripLanes::kMost];
      for (int64_t lane = 0; lane < lanes_; ++lane) {
        rows[lane] = first + lane < tile.rows ? q_[tile.row[first + lane]] : spare_;
      }
      math_.transpose(rows, dim_, columns_ + first * dim_);
    }
    // The runs of a list begin at multiples of kPartKeys, so that the bits of a row do not depend on its neighbours
    // (a tile of the window always has the same rows).
    const int64_t start = tile.keys == nullptr ? low : low / kPartKeys * kPartKeys;
    for (int64_t part = start; part < high; part += kPartKeys) {
      const int64_t part_end = std::min(part + kPartKeys, high);
      const int64_t from = std::max(part, low);
      keys_.load(math_, keys, tile, from, part_end);
      values_.load(math_, values, tile, from, part_end);
      for (int64_t first = 0; first < tile.rows; first += lanes_) {
        auto [begin, end] = tile.span(first, first + lanes_);
        begin = std::max(begin, from);
        end = std::min(end, part_end);
        if (begin >= end) continue;
        if (tile.keys == nullptr && end - begin <= kLastChunk) {
          step(tile, first, begin, end, from);
          continue;
        }
        const int64_t origin = tile.keys == nullptr ? begin : begin / kChunkKeys * kChunkKeys;
        for (int64_t chunk = origin; chunk < end; chunk += kChunkKeys) {
          step(tile, first, std::max(chunk, begin), std::min(chunk + kChunkKeys, end), from);
        }
      }
    }
  }

  // One strip, from row `first` of the tile on, against the keys [begin, end); `loaded` is the first key in keys_.
  void step(const RowTile& tile, int64_t first, int64_t begin, int64_t end, int64_t loaded) {
    lane_.set(tile, first, lanes_, begin, end);
    float maximum[StripLanes::kMost];
    float sum[StripLanes::kMost];
    float shrink[StripLanes::kMost];
    float* out[StripLanes::kMost];
    const int64_t count = std::min(lanes_, tile.rows - first);
    for (int64_t lane = 0; lane < lanes_; ++lane) {
      const int64_t row = lane < count ? tile.row[first + lane] : 0;
      maximum[lane] = lane < count ? maximum_[row] : kStart;
      sum[lane] = lane < count ? sum_[row] : 0.0F;
      out[lane] = lane < count ? out_ + row * width_ : spare_;
    }
    const StripScores scores{end - begin, scores_, lane_.begin, lane_.end, scale_.multiplier, scale_.cap};
    math_.products(scores, columns_ + first * dim_, dim_, keys_.at(begin - loaded), scale_.factor);
    math_.softmax_step(scores, maximum, sum, shrink);
    math_.add_rows(scores, shrink, values_.at(begin - loaded), width_, out);
    for (int64_t lane = 0; lane < count; ++lane) {
      maximum_[tile.row[first + lane]] = maximum[lane];
      sum_[tile.row[first + lane]] = sum[lane];
    }
  }

  // Normalises the states of one head and writes out and lse.
  void write(int64_t batch, int64_t head, int64_t h, int64_t last) {
    const int64_t base = (batch * plan_.problem.heads() + head) * plan_.problem.tq();
    T* out = output_.out.mutable_data_ptr<T>() + base * dim_;
    float* lse = output_.lse.mutable_data_ptr<float>() + base;
    for (int64_t query = first_; query < last; ++query) {
      const int64_t row = (query - first_) * group_ + h;
      const bool empty = sum_[row] == 0.0F;
      const float factor = empty ? 0.0F : 1.0F / sum_[row];
      lse[query] = empty ? -std::numeric_limits<float>::infinity()
                         : maximum_[row] * std::numbers::ln2_v<float> + std::log(sum_[row]);
      for (int64_t d = 0; d < dim_; ++d) out[query * dim_ + d] = static_cast<T>(out_[row * width_ + d] * factor);
    }
  }

  const Plan& plan_;
  const StripMath& math_;
  AttentionOutput& output_;
  int64_t group_, dim_, width_, lanes_;
  ScoreScale scale_;
  int64_t first_ = 0;
  Scratch scratch_;
  // States of the block's rows.
  float *q_buffer_ = nullptr, *out_, *maximum_, *sum_;
  std::vector<const float*> q_;
  // Of one tile: Q^T by strip [strips][D][lanes], the scores of one strip, keys and values of one run.
  float *columns_, *scores_, *spare_;
  KeyRows keys_, values_;
  StripLanes lane_;
};

}  // namespace

AttentionOutput strip_forward(const AttentionProblem& problem) {
  AttentionOutput output;
  output.out = empty_output(problem.q.sizes(), problem.q.options().memory_format(at::MemoryFormat::Contiguous));
  output.lse = empty_output({problem.batch(), problem.heads(), problem.tq()}, problem.q.options().dtype(at::kFloat));
  if (problem.tq() == 0 || problem.batch() == 0) return output;
  const StripMath& math = strip_math();
  Plan plan{problem, math, {}, {}, block_queries(problem, kTileStrips * math.lanes), 0};
  if (problem.document_start) plan.documents = problem.document_start->contiguous();
  if (problem.key_group) plan.indices = build_list_indices(*problem.key_group, *problem.probes);
  plan.blocks = (problem.tq() + plan.block - 1) / plan.block;
  const int64_t tasks = problem.batch() * problem.kv_heads() * plan.blocks;
  with_dtype(problem.q.scalar_type(),
             [&](auto example) { run_tasks(tasks, [&] { return ForwardWorker<decltype(example)>(plan, output); }); });
  return output;
}

}  // namespace focus::kernels::cpu
