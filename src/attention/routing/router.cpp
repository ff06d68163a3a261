#include "attention/routing/router.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "attention/routing/formulas.h"
#include "attention/routing/rows.h"
#include "attention/routing/sinkhorn.h"
#include "base/error.h"

namespace focus {

std::vector<std::pair<std::string, std::vector<int64_t>>> LayerRouter::layout(const RoutingConfig& config,
                                                                              int64_t hidden_size, int64_t head_sets) {
  const int64_t dim = config.group_dim;
  if (config.symmetric) {
    return {{"projection", {head_sets, dim, hidden_size}},
            {"centroids", {head_sets, config.groups, dim}},
            {"potentials", {head_sets, config.groups}}};
  }
  return {{"query_projection", {head_sets, dim, hidden_size}},
          {"key_projection", {head_sets, dim, hidden_size}},
          {"key_bias", {head_sets, hidden_size}},
          {"codebook", {head_sets, config.entries(), dim + 1}},
          {"potentials", {head_sets, config.entries()}},
          {"probe_exponent", {head_sets}}};
}

int64_t probes_of_set(double exponent, int64_t groups_per_token, int64_t groups) {
  const double share = static_cast<double>(groups_per_token) / static_cast<double>(groups);
  const double probes = static_cast<double>(groups) * std::pow(share, exponent);
  return std::clamp<int64_t>(std::llround(probes), 1, groups);
}

at::Tensor& LayerRouter::tensor(const std::string& name) {
  if (name == "query_projection") return query_projection;
  if (name == "key_projection") return key_projection;
  if (name == "key_bias") return key_bias;
  if (name == "codebook") return codebook;
  if (name == "potentials") return potentials;
  if (name == "probe_exponent") return probe_exponent;
  if (name == "projection") return projection;
  if (name == "centroids") return centroids;
  fail("router tensor {}: no such name", name);
}

const at::Tensor& LayerRouter::tensor(const std::string& name) const {
  return const_cast<LayerRouter*>(this)->tensor(name);
}

/// A layer's weights packed for multiply_rows.
struct Router::Plan {
  PackedMatrix projection;          // [d, Hg * (2 d_g + 1)]: W_q, W_k, u of each set; symmetric [d, Hg * d_g]
  std::vector<PackedMatrix> lists;  // Hg times [d_g + 1, E]; symmetric [d_g, K]
  std::vector<float> potentials;    // [Hg, E]
  std::vector<int64_t> probes;      // [Hg]

  int64_t slots() const { return 1 + *std::max_element(probes.begin(), probes.end()); }
};

/// A run of tokens of one batch row and where their routes go.
struct Router::Block {
  const float* hidden;      // [rows, d]
  const int64_t* position;  // [rows]
  int64_t rows;
  const float* potentials;  // [Hg, E]
  int32_t* key_group;       // [Hg, rows], set stride `stride`
  int32_t* probes;          // [Hg, rows, 1 + P], set stride `stride` * (1 + P)
  int64_t stride;           // T
  std::atomic<bool>* bad;   // set on a hidden state that is not finite
};

namespace {

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

// Columns [first, first + n) of a matrix out of weight [n, depth], contiguous.
void pack(PackedMatrix& matrix, int64_t first, const at::Tensor& weight) {
  const at::Tensor rows = weight.contiguous();
  const float* values = rows.const_data_ptr<float>();
  for (int64_t n = 0; n < rows.size(0); ++n) {
    for (int64_t x = 0; x < matrix.depth; ++x) matrix.set(x, first + n, values[n * matrix.depth + x]);
  }
}

// out = x / max(|x|, floor); false if x is not finite.
bool normalize(const float* x, int64_t n, float* out) {
  float square = 0;
  for (int64_t i = 0; i < n; ++i) square += x[i] * x[i];
  const float norm = std::max(std::sqrt(square), static_cast<float>(kNormFloor));
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] / norm;
  return std::isfinite(square);
}

// scores[r, e] = scores[r, e] / tau + potentials[e]
void finish_scores(float* scores, int64_t rows, int64_t stride, int64_t entries, float tau, const float* potentials) {
  for (int64_t r = 0; r < rows; ++r) {
    float* row = scores + r * stride;
    for (int64_t e = 0; e < entries; ++e) row[e] = row[e] / tau + potentials[e];
  }
}

constexpr int64_t kBlockRows = 64;

}  // namespace

Router::Router(const RoutingConfig& config, std::map<int64_t, LayerRouter> layers)
    : config_(config), layers_(std::move(layers)) {
  config_.validate();
  require(!layers_.empty(), "router: it has no layers");
  if (config_.symmetric) {
    patterns_ = std::make_shared<PatternTable>(config_.groups, config_.groups_per_token);
  }
  const at::Tensor& first =
      config_.symmetric ? layers_.begin()->second.projection : layers_.begin()->second.query_projection;
  require(first.defined() && first.dim() == 3, "router: layer {} has no projection [sets, group_dim, hidden]",
          layers_.begin()->first);
  head_sets_ = first.size(0);
  hidden_size_ = first.size(2);
  require(!config_.shared || head_sets_ == 1, "router: shared, but with {} list sets", head_sets_);
  for (auto& [number, layer] : layers_) {
    for (const auto& [name, shape] : LayerRouter::layout(config_, hidden_size_, head_sets_)) {
      at::Tensor& tensor = layer.tensor(name);
      require(tensor.defined(), "router: layer {} has no {}", number, name);
      require(tensor.sizes() == at::IntArrayRef(shape), "router: layer {}: {} has the shape {}, expected {}", number,
              name, shape_text(tensor.sizes()), shape_text(shape));
      require(tensor.scalar_type() == at::kFloat, "router: layer {}: {} is {}, expected float32", number, name,
              c10::toString(tensor.scalar_type()));
      require(at::isfinite(tensor).all().item<bool>(), "router: layer {}: {} has values that are not finite", number,
              name);
      tensor = tensor.detach().to(at::kCPU).contiguous();
    }
    auto plan = std::make_shared<Plan>();
    const int64_t dim = config_.group_dim;
    const int64_t columns = config_.symmetric ? dim : 2 * dim + 1;
    plan->projection = PackedMatrix(hidden_size_, head_sets_ * columns);
    for (int64_t s = 0; s < head_sets_; ++s) {
      const at::Tensor& lists = config_.symmetric ? layer.centroids : layer.codebook;
      if (config_.symmetric) {
        pack(plan->projection, s * columns, layer.projection[s]);
      } else {
        pack(plan->projection, s * columns, layer.query_projection[s]);
        pack(plan->projection, s * columns + dim, layer.key_projection[s]);
        pack(plan->projection, s * columns + 2 * dim, layer.key_bias[s].unsqueeze(0));
      }
      plan->lists.emplace_back(lists.size(2), lists.size(1));
      pack(plan->lists.back(), 0, lists[s]);
    }
    const float* potentials = layer.potentials.const_data_ptr<float>();
    plan->potentials.assign(potentials, potentials + layer.potentials.numel());
    if (patterns_) {
      plan->probes.assign(static_cast<size_t>(head_sets_), patterns_->probes());
    } else {
      for (int64_t s = 0; s < head_sets_; ++s) {
        const auto exponent = static_cast<double>(layer.probe_exponent.const_data_ptr<float>()[s]);
        require(exponent > 0, "router: layer {}: probe_exponent holds {}, expected positive numbers", number, exponent);
        plan->probes.push_back(probes_of_set(exponent, config_.groups_per_token, config_.groups));
      }
    }
    plans_[number] = std::move(plan);
  }
}

const std::vector<int64_t>& Router::probes(int64_t layer) const {
  const auto plan = plans_.find(layer);
  require(plan != plans_.end(), "router: it has no layer {}", layer);
  return plan->second->probes;
}

void Router::route_lists(const Plan& plan, const Block& block) const {
  const int64_t dim = config_.group_dim;
  const int64_t width = 2 * dim + 1;
  const int64_t entries = config_.entries();
  const int64_t first_list = config_.global_group ? 1 : 0;  // entry of list 1
  const int32_t to_id = config_.global_group ? 0 : 1;       // id = entry + to_id
  const int64_t slots = plan.slots();
  const float tau = static_cast<float>(config_.tau);
  const int64_t projected_stride = plan.projection.padded_columns();
  const int64_t score_stride = plan.lists.front().padded_columns();
  std::vector<float> projected(static_cast<size_t>(block.rows * projected_stride));
  std::vector<float> feature(static_cast<size_t>(block.rows * (dim + 1)));
  std::vector<float> scores(static_cast<size_t>(block.rows * score_stride));
  std::vector<int32_t> best;
  multiply_rows(block.hidden, block.rows, hidden_size_, plan.projection, projected.data(), projected_stride);
  for (int64_t s = 0; s < head_sets_; ++s) {
    bool finite = true;
    for (int64_t r = 0; r < block.rows; ++r) {  // [k_hat, tau * u.h]
      const float* p = projected.data() + r * projected_stride + s * width;
      float* f = feature.data() + r * (dim + 1);
      finite = normalize(p + dim, dim, f) && finite;
      f[dim] = tau * p[2 * dim];
      finite = finite && std::isfinite(f[dim]);
    }
    multiply_rows(feature.data(), block.rows, dim + 1, plan.lists[static_cast<size_t>(s)], scores.data(), score_stride);
    finish_scores(scores.data(), block.rows, score_stride, entries, tau, block.potentials + s * entries);
    int32_t* key_group = block.key_group + s * block.stride;
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t at = block.position[r];
      key_group[r] = at < 0 ? -1
                     : at < config_.sinks
                         ? 0
                         : static_cast<int32_t>(argmax_row(scores.data() + r * score_stride, 0, entries)) + to_id;
    }
    for (int64_t r = 0; r < block.rows; ++r) {  // [q_hat, 1]
      float* f = feature.data() + r * (dim + 1);
      finite = normalize(projected.data() + r * projected_stride + s * width, dim, f) && finite;
      f[dim] = 1;
    }
    multiply_rows(feature.data(), block.rows, dim + 1, plan.lists[static_cast<size_t>(s)], scores.data(), score_stride);
    for (int64_t r = 0; r < block.rows; ++r) {
      int32_t* probes = block.probes + (s * block.stride + r) * slots;
      if (block.position[r] < 0) {
        std::fill(probes, probes + slots, -1);
        continue;
      }
      probes[0] = 0;
      top_row(scores.data() + r * score_stride, first_list, entries, plan.probes[static_cast<size_t>(s)], best);
      for (size_t p = 0; p < best.size(); ++p) probes[p + 1] = best[p] + to_id;
      std::fill(probes + 1 + best.size(), probes + slots, -1);
    }
    if (!finite) block.bad->store(true, std::memory_order_relaxed);
  }
}

void Router::route_patterns(const Plan& plan, const Block& block) const {
  const int64_t dim = config_.group_dim;
  const int64_t groups = config_.groups;
  const int64_t slots = plan.slots();
  const float tau = static_cast<float>(config_.tau);
  const int64_t projected_stride = plan.projection.padded_columns();
  const int64_t score_stride = plan.lists.front().padded_columns();
  std::vector<float> projected(static_cast<size_t>(block.rows * projected_stride));
  std::vector<float> scores(static_cast<size_t>(block.rows * score_stride));
  std::vector<int32_t> best;
  multiply_rows(block.hidden, block.rows, hidden_size_, plan.projection, projected.data(), projected_stride);
  for (int64_t s = 0; s < head_sets_; ++s) {
    multiply_rows(projected.data() + s * dim, block.rows, projected_stride, plan.lists[static_cast<size_t>(s)],
                  scores.data(), score_stride);
    finish_scores(scores.data(), block.rows, score_stride, groups, tau, block.potentials + s * groups);
    for (int64_t r = 0; r < block.rows; ++r) {
      const float* row = scores.data() + r * score_stride;
      if (!std::all_of(row, row + groups, [](float x) { return std::isfinite(x); })) {
        block.bad->store(true, std::memory_order_relaxed);
        return;
      }
      const int64_t at = block.position[r];
      int32_t* key_group = block.key_group + s * block.stride + r;
      int32_t* probes = block.probes + (s * block.stride + r) * slots;
      if (at < 0) {
        *key_group = -1;
        std::fill(probes, probes + slots, -1);
        continue;
      }
      top_row(row, 0, groups, config_.groups_per_token, best);
      const int64_t pattern = patterns_->rank(best);
      *key_group = at < config_.sinks ? 0 : static_cast<int32_t>(pattern) + 1;
      probes[0] = 0;
      const auto sharing = patterns_->sharing(pattern);
      std::transform(sharing.begin(), sharing.end(), probes + 1, [](int32_t p) { return p + 1; });
    }
  }
}

Routes Router::route(int64_t layer, const at::Tensor& hidden, const at::Tensor& position_in_document) const {
  at::NoGradGuard no_grad;
  const auto plan_at = plans_.find(layer);
  require(plan_at != plans_.end(), "router: it has no layer {}", layer);
  const Plan& plan = *plan_at->second;
  require(hidden.dim() == 3 && hidden.size(2) == hidden_size_, "router: hidden states {}, expected [batch, tokens, {}]",
          shape_text(hidden.sizes()), hidden_size_);
  const int64_t batch = hidden.size(0);
  const int64_t tokens = hidden.size(1);
  require(position_in_document.dim() == 2 && position_in_document.size(0) == batch &&
              position_in_document.size(1) == tokens && !position_in_document.is_floating_point(),
          "router: positions {}, expected integers [{}, {}]", shape_text(position_in_document.sizes()), batch, tokens);
  const at::Tensor rows = hidden.to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor position = position_in_document.to(at::kCPU, at::kLong).contiguous();
  const int64_t slots = plan.slots();
  Routes routes{at::empty({batch, head_sets_, tokens}, at::kInt),
                at::empty({batch, head_sets_, tokens, slots}, at::kInt)};

  at::Tensor potentials = layers_.at(layer).potentials.unsqueeze(0).expand({batch, -1, -1}).contiguous();
  if (config_.routing == RoutingMode::kPaper) {
    const LayerRouter& weights = layers_.at(layer);
    for (int64_t b = 0; b < batch; ++b) {
      const at::Tensor real = rows[b].index_select(0, position[b].ge(0).nonzero().squeeze(1));
      if (real.size(0) == 0) continue;
      const at::Tensor scores = symmetric_scores(real, weights.projection, weights.centroids, config_.tau);
      potentials[b].copy_(sinkhorn_potentials(scores, config_.sinkhorn_iters));
    }
  }

  const int64_t blocks = (tokens + kBlockRows - 1) / kBlockRows;
  std::atomic<bool> bad{false};
  const float* hidden_data = rows.const_data_ptr<float>();
  const int64_t* position_data = position.const_data_ptr<int64_t>();
  const float* potential_data = potentials.const_data_ptr<float>();
  int32_t* key_data = routes.key_group.data_ptr<int32_t>();
  int32_t* probe_data = routes.probes.data_ptr<int32_t>();
  at::parallel_for(0, batch * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / blocks;
      const int64_t t = (i % blocks) * kBlockRows;
      Block block{};
      block.hidden = hidden_data + (b * tokens + t) * hidden_size_;
      block.position = position_data + b * tokens + t;
      block.rows = std::min(kBlockRows, tokens - t);
      block.potentials = potential_data + b * potentials.size(1) * potentials.size(2);
      block.key_group = key_data + b * head_sets_ * tokens + t;
      block.probes = probe_data + (b * head_sets_ * tokens + t) * slots;
      block.stride = tokens;
      block.bad = &bad;
      if (config_.symmetric) {
        route_patterns(plan, block);
      } else {
        route_lists(plan, block);
      }
    }
  });
  require(!bad.load(), "layer {}: the hidden states have values that are not finite; no token can be routed", layer);
  if (hidden.device() != at::kCPU) {
    routes.key_group = routes.key_group.to(hidden.device());
    routes.probes = routes.probes.to(hidden.device());
  }
  return routes;
}

}  // namespace focus
