#include "bench/random_lists.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <numeric>

#include "attention/routing/symmetric.h"
#include "base/error.h"

namespace focus {

std::vector<double> list_shares(int64_t groups, double skew) {
  if (skew < 1.0 || (skew > 1.0 && skew >= static_cast<double>(groups))) {
    fail_usage("--skew {}: expected 1 (lists of equal size) up to below the number of groups, {}", skew, groups);
  }
  const auto draw = [&](double ratio) {
    std::vector<double> shares(static_cast<size_t>(groups));
    double share = 1.0;
    for (double& s : shares) {
      s = share;
      share *= ratio;
    }
    const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& s : shares) s /= total;
    return shares;
  };
  double low = 0.0;  // ratio of neighbouring sizes: the smaller, the more uneven
  double high = 1.0;
  for (int step = 0; step < 60 && skew > 1.0; ++step) {
    const double middle = 0.5 * (low + high);
    (draw(middle).front() * static_cast<double>(groups) > skew ? low : high) = middle;
  }
  return draw(high);
}

namespace {

// Ids 0 .. K-1 of `length` tokens, list sizes as near to the shares as whole numbers come, in random order. [length]
at::Tensor draw_ids(const std::vector<double>& shares, int64_t length, at::Generator& generator) {
  at::Tensor ids = at::empty({length}, at::kInt);
  int32_t* data = ids.mutable_data_ptr<int32_t>();
  double before = 0.0;
  int64_t filled = 0;
  for (size_t list = 0; list < shares.size(); ++list) {
    before += shares[list];
    const int64_t end = list + 1 == shares.size() ? length : std::llround(before * static_cast<double>(length));
    for (; filled < end; ++filled) data[filled] = static_cast<int32_t>(list);
  }
  return ids.index_select(0, at::randperm(length, generator, at::TensorOptions().dtype(at::kLong)));
}

// P different ids for each of `rows` queries, the chance of each proportional to its weight (Gumbel's trick). [rows, P]
at::Tensor draw_probes(const at::Tensor& log_weights, int64_t rows, int64_t probes, at::Generator& generator) {
  const at::Tensor uniform =
      at::rand({rows, log_weights.size(0)}, generator, at::TensorOptions()).clamp_(1e-7, 1 - 1e-7);
  const at::Tensor keys = log_weights - uniform.log_().neg_().log_();
  return std::get<1>(keys.topk(probes, -1)).to(at::kInt);
}

constexpr int64_t kChunk = 65536;

}  // namespace

AttentionParams random_lists(const RandomListsSpec& spec) {
  at::Generator generator = at::detail::createCPUGenerator(spec.seed);
  const PatternTable patterns(spec.symmetric ? spec.groups : 1, spec.symmetric ? spec.groups_per_token : 1);
  const int64_t lists = spec.symmetric ? patterns.patterns() : spec.groups;
  const int64_t slots = spec.symmetric ? patterns.probes() : spec.groups_per_token;
  const std::vector<double> shares = list_shares(lists, spec.skew);
  at::Tensor weights = at::zeros({lists});
  if (spec.choice == ProbeChoice::kProportional) {
    for (int64_t e = 0; e < lists; ++e) weights[e] = std::log(shares[static_cast<size_t>(e)]);
  }
  AttentionParams params;
  params.key_group = at::empty({spec.batch, spec.sets, spec.length}, at::kInt);
  params.probes = at::zeros({spec.batch, spec.sets, spec.length, 1 + slots}, at::kInt);
  at::Tensor sharing;  // symmetric: [patterns, slots]
  if (spec.symmetric) {
    sharing = at::empty({lists, slots}, at::kInt);
    for (int64_t p = 0; p < lists; ++p) {
      std::copy_n(patterns.sharing(p).data(), slots, sharing.mutable_data_ptr<int32_t>() + p * slots);
    }
  }
  for (int64_t b = 0; b < spec.batch; ++b) {
    for (int64_t s = 0; s < spec.sets; ++s) {
      const at::Tensor ids = draw_ids(shares, spec.length, generator);
      at::Tensor row = (*params.key_group)[b][s];
      row.copy_(ids + 1);
      row.slice(0, 0, std::min(spec.sinks, spec.length)).zero_();
      const at::Tensor probes = (*params.probes)[b][s].slice(1, 1);
      for (int64_t t = 0; t < spec.length; t += kChunk) {
        const int64_t rows = std::min(kChunk, spec.length - t);
        at::Tensor drawn;
        if (spec.symmetric) {
          drawn = sharing.index_select(0, ids.slice(0, t, t + rows));
        } else if (spec.choice == ProbeChoice::kOwn) {
          drawn = ids.slice(0, t, t + rows).unsqueeze(1);
        } else {
          drawn = draw_probes(weights, rows, slots, generator);
        }
        probes.slice(0, t, t + rows).copy_(drawn + 1);
      }
    }
  }
  return params;
}

}  // namespace focus
