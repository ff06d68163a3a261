#include "inspect/attention_sample.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"

namespace focus {

namespace {

// Why a pair is allowed; the flag on top says that shuffled lists would allow it.
enum : uint8_t { kNone, kNear, kSink, kListed, kShuffledToo = 4 };

// Which lists a query probes, as a table over ids that is set for one query and cleared again.
class ProbeTable {
 public:
  explicit ProbeTable(int64_t ids) : marked_(static_cast<size_t>(ids)) {}
  void mark(const int32_t* probes, int64_t slots, bool value) {
    for (int64_t p = 0; p < slots; ++p) {
      if (probes[p] >= 0) marked_[static_cast<size_t>(probes[p])] = value;
    }
  }
  bool has(int32_t list) const { return list >= 0 && marked_[static_cast<size_t>(list)]; }

 private:
  std::vector<uint8_t> marked_;
};

int64_t id_count(const WindowLists& lists) {
  return 1 + std::max(lists.key_group.max().item<int32_t>(), lists.probes.max().item<int32_t>());
}

}  // namespace

int64_t distance_bin(int64_t distance) {
  return std::min<int64_t>(std::bit_width(static_cast<uint64_t>(distance)), kDistanceBins - 1);
}

MassSums& MassSums::operator+=(const MassSums& other) {
  rows += other.rows;
  window += other.window;
  sinks += other.sinks;
  lists += other.lists;
  shuffled_lists += other.shuffled_lists;
  for (size_t b = 0; b < kDistanceBins; ++b) {
    mass[b] += other.mass[b];
    mass_kept[b] += other.mass_kept[b];
    pairs[b] += other.pairs[b];
    pairs_kept[b] += other.pairs_kept[b];
  }
  return *this;
}

at::Tensor attention_rows(const AttentionInput& input, const at::Tensor& rows) {
  require(input.q.size(0) == 1 && input.cache == nullptr && !input.document_start.has_value(),
          "attention_rows: expected one sequence of one document without a cache");
  const int64_t kv_heads = input.k.size(1);
  const int64_t heads = input.q.size(1) / kv_heads;
  const int64_t tokens = input.k.size(2);
  const int64_t n = rows.size(0);
  const at::Tensor q = input.q[0].index_select(1, rows.to(input.q.device())).to(at::kCPU, at::kFloat);  // [Hq, R, D]
  const at::Tensor k = input.k[0].to(at::kCPU, at::kFloat);                                             // [Hkv, T, D]
  at::Tensor scores =
      at::matmul(q.reshape({kv_heads, heads * n, q.size(2)}), k.transpose(1, 2)).view({kv_heads, heads, n, tokens});
  scores.mul_(input.scale);
  if (input.softcap > 0) scores = input.softcap * at::tanh(scores / input.softcap);
  const at::Tensor distance = rows.unsqueeze(1) - at::arange(tokens, at::kLong).unsqueeze(0);  // [R, T]
  at::Tensor hidden = distance.lt(0);
  if (input.layer_window > 0) hidden.logical_or_(distance.ge(input.layer_window));
  scores.masked_fill_(hidden, -std::numeric_limits<float>::infinity());
  return at::softmax(scores, -1).contiguous();
}

MassSums measure_mass(const WindowLists& lists, const std::vector<int64_t>& rows, const at::Tensor& probabilities,
                      int64_t layer_window, std::vector<FarPair>& far) {
  const int64_t sets = lists.key_group.size(0);
  const int64_t tokens = lists.key_group.size(1);
  const int64_t slots = lists.probes.size(2);
  const int64_t n = std::ssize(rows);
  const int64_t heads = probabilities.size(0) * probabilities.size(1);
  const int64_t heads_a_set = heads / sets;
  const int64_t ids = id_count(lists);
  const float* p = probabilities.const_data_ptr<float>();  // [Hq, R, T]
  std::vector<MassSums> sums(static_cast<size_t>(sets));
  std::vector<std::vector<FarPair>> found(static_cast<size_t>(sets));
  std::vector<uint8_t> bins(static_cast<size_t>(tokens));
  for (int64_t d = 0; d < tokens; ++d) bins[static_cast<size_t>(d)] = static_cast<uint8_t>(distance_bin(d));

  at::parallel_for(0, sets, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      MassSums& sum = sums[static_cast<size_t>(s)];
      ProbeTable probed(ids);
      std::vector<uint8_t> rule(static_cast<size_t>(tokens));
      const int32_t* group = lists.key_group.const_data_ptr<int32_t>() + s * tokens;
      const int32_t* shuffled = lists.shuffled.const_data_ptr<int32_t>() + s * tokens;
      const int32_t* probes = lists.probes.const_data_ptr<int32_t>() + s * tokens * slots;
      for (int64_t r = 0; r < n; ++r) {
        const int64_t i = rows[static_cast<size_t>(r)];
        const int64_t first = layer_window > 0 ? std::max<int64_t>(0, i - layer_window + 1) : 0;
        probed.mark(probes + i * slots, slots, true);
        for (int64_t j = first; j <= i; ++j) {
          uint8_t why = kNone;
          if (i - j <= lists.window) {
            why = kNear;
          } else if (probed.has(group[j])) {
            why = j < lists.sinks ? kSink : kListed;
          }
          const auto bin = static_cast<size_t>(bins[static_cast<size_t>(i - j)]);
          ++sum.pairs[bin];
          if (why != kNone) ++sum.pairs_kept[bin];
          if (why != kNear && why != kSink && probed.has(shuffled[j])) why |= kShuffledToo;
          rule[static_cast<size_t>(j)] = why;
        }
        probed.mark(probes + i * slots, slots, false);
        for (int64_t h = s * heads_a_set; h < (s + 1) * heads_a_set; ++h) {
          const float* row = p + (h * n + r) * tokens;
          FarPair best{.set = s, .head = h, .query = i};
          for (int64_t j = first; j <= i; ++j) {
            const double mass = row[j];
            const uint8_t why = rule[static_cast<size_t>(j)];
            const auto bin = static_cast<size_t>(bins[static_cast<size_t>(i - j)]);
            sum.mass[bin] += mass;
            if (why & kShuffledToo) sum.shuffled_lists += mass;
            switch (why & 3) {
              case kNear:
                sum.window += mass;
                break;
              case kSink:
                sum.sinks += mass;
                break;
              case kListed:
                sum.lists += mass;
                if (mass > best.mass) {
                  best.mass = mass;
                  best.key = j;
                  best.list = group[j];
                }
                break;
              default:
                continue;
            }
            sum.mass_kept[bin] += mass;
          }
          sum.rows += 1;
          if (best.mass > 0) found[static_cast<size_t>(s)].push_back(best);
        }
      }
    }
  });
  MassSums total;
  for (const MassSums& sum : sums) total += sum;
  for (const auto& pairs : found) far.insert(far.end(), pairs.begin(), pairs.end());
  return total;
}

std::vector<int64_t> pairs_by_length(const WindowLists& lists, int64_t layer_window,
                                     const std::vector<int64_t>& lengths) {
  const int64_t sets = lists.key_group.size(0);
  const int64_t tokens = lists.key_group.size(1);
  const int64_t slots = lists.probes.size(2);
  const int64_t ids = id_count(lists);
  const bool reachable =
      layer_window == 0 || layer_window > lists.window + 1;  // Is any key beyond the window in sight?
  std::vector<int64_t> result(lengths.size());
  for (int64_t s = 0; s < sets; ++s) {
    const int32_t* group = lists.key_group.const_data_ptr<int32_t>() + s * tokens;
    const int32_t* probes = lists.probes.const_data_ptr<int32_t>() + s * tokens * slots;
    std::vector<int64_t> size(static_cast<size_t>(ids));  // keys of each list that query i sees beyond its window
    const auto count = [&](int64_t j, int64_t by) {
      if (group[j] >= 0) size[static_cast<size_t>(group[j])] += by;
    };
    int64_t kept = 0;
    size_t next = 0;
    for (int64_t i = 0; i < tokens && next < lengths.size(); ++i) {
      const int64_t first = layer_window > 0 ? std::max<int64_t>(0, i - layer_window + 1) : 0;
      const int64_t near = std::max(first, i - lists.window);
      if (reachable) {
        if (i > lists.window) count(i - lists.window - 1, 1);
        if (first > 0) count(first - 1, -1);
      }
      kept += i - near + 1;
      for (int64_t x = 0; x < slots; ++x) {
        const int32_t id = probes[i * slots + x];
        if (id >= 0) kept += size[static_cast<size_t>(id)];
      }
      for (; next < lengths.size() && lengths[next] == i + 1; ++next) result[next] += kept;
    }
  }
  return result;
}

}  // namespace focus
