#include "inspect/list_stats.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace focus {

namespace {

// Positions grouped by list, ascending inside each: list g holds order[begin[g]] .. order[begin[g + 1] - 1].
struct Sorted {
  std::vector<int64_t> begin;
  std::vector<int32_t> order;
};

Sorted sort_by_list(std::span<const int16_t> lists, int64_t ids) {
  Sorted result;
  result.begin.assign(static_cast<size_t>(ids + 1), 0);
  for (const int16_t list : lists) {
    require(list < ids, "list {} of a token, expected fewer than {} lists", list, ids);
    if (list >= 0) ++result.begin[static_cast<size_t>(list + 1)];
  }
  for (size_t g = 1; g < result.begin.size(); ++g) result.begin[g] += result.begin[g - 1];
  result.order.resize(static_cast<size_t>(result.begin.back()));
  std::vector<int64_t> next(result.begin.begin(), result.begin.end() - 1);
  for (size_t t = 0; t < lists.size(); ++t) {
    if (lists[t] >= 0) {
      result.order[static_cast<size_t>(next[static_cast<size_t>(lists[t])]++)] = static_cast<int32_t>(t);
    }
  }
  return result;
}

int64_t id_count(std::span<const int16_t> lists) {
  return lists.empty() ? 0 : std::max<int64_t>(0, 1 + *std::max_element(lists.begin(), lists.end()));
}

// c log2 c, the term of an entropy out of counts.
double term(int64_t count) {
  return count > 0 ? static_cast<double>(count) * std::log2(static_cast<double>(count)) : 0.0;
}

}  // namespace

std::vector<ListStats> list_stats(std::span<const int16_t> lists, std::span<const int32_t> tokens,
                                  std::span<const TokenClass> classes, int64_t ids, int64_t top_tokens) {
  require(lists.size() == tokens.size() && lists.size() == classes.size(),
          "list_stats: {} lists for {} tokens with {} classes", lists.size(), tokens.size(), classes.size());
  const Sorted sorted = sort_by_list(lists, ids);
  const int32_t vocabulary = tokens.empty() ? 0 : 1 + *std::max_element(tokens.begin(), tokens.end());
  std::vector<int64_t> count(static_cast<size_t>(vocabulary));
  std::vector<ListStats> result(static_cast<size_t>(ids));
  for (size_t g = 0; g < result.size(); ++g) {
    ListStats& stats = result[g];
    stats.size = sorted.begin[g + 1] - sorted.begin[g];
    if (stats.size == 0) continue;
    std::vector<std::pair<int32_t, int64_t>> found;
    const std::span members(sorted.order.data() + sorted.begin[g], static_cast<size_t>(stats.size));
    for (const int32_t t : members) {
      const int32_t token = tokens[static_cast<size_t>(t)];
      if (count[static_cast<size_t>(token)]++ == 0) found.emplace_back(token, 0);
      ++stats.classes[static_cast<size_t>(classes[static_cast<size_t>(t)])];
    }
    double terms = 0;
    for (auto& [token, n] : found) {
      n = std::exchange(count[static_cast<size_t>(token)], 0);
      terms += term(n);
    }
    const auto size = static_cast<double>(stats.size);
    stats.token_entropy = std::max(0.0, std::log2(size) - terms / size);
    const auto largest = std::max_element(stats.classes.begin(), stats.classes.end());
    stats.majority = static_cast<TokenClass>(largest - stats.classes.begin());
    stats.purity = static_cast<double>(*largest) / size;
    const auto kept = static_cast<std::ptrdiff_t>(std::min<size_t>(found.size(), static_cast<size_t>(top_tokens)));
    std::partial_sort(found.begin(), found.begin() + kept, found.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
    found.resize(static_cast<size_t>(kept));
    stats.top = std::move(found);
  }
  return result;
}

MeanStats mean_stats(std::span<const ListStats> lists) {
  MeanStats mean;
  for (const ListStats& list : lists) {
    mean.tokens += list.size;
    mean.purity += list.purity * static_cast<double>(list.size);
    mean.token_entropy += list.token_entropy * static_cast<double>(list.size);
  }
  if (mean.tokens > 0) {
    mean.purity /= static_cast<double>(mean.tokens);
    mean.token_entropy /= static_cast<double>(mean.tokens);
  }
  return mean;
}

double list_agreement(std::span<const int16_t> a, std::span<const int16_t> b) {
  require(a.size() == b.size(), "list_agreement: {} and {} tokens", a.size(), b.size());
  const Sorted rows = sort_by_list(a, id_count(a));
  std::vector<int64_t> in_row(static_cast<size_t>(id_count(b)));
  std::vector<int64_t> column(in_row.size());
  std::vector<size_t> touched;  // the columns of this row, so that the cost follows the tokens, not the lists squared
  int64_t total = 0;
  double joint = 0, row_terms = 0;
  for (size_t g = 0; g + 1 < rows.begin.size(); ++g) {
    int64_t size = 0;
    for (int64_t x = rows.begin[g]; x < rows.begin[g + 1]; ++x) {
      const int16_t other = b[static_cast<size_t>(rows.order[static_cast<size_t>(x)])];
      if (other < 0) continue;
      if (in_row[static_cast<size_t>(other)]++ == 0) touched.push_back(static_cast<size_t>(other));
      ++size;
    }
    for (const size_t c : touched) {
      joint += term(in_row[c]);
      column[c] += std::exchange(in_row[c], 0);
    }
    touched.clear();
    row_terms += term(size);
    total += size;
  }
  if (total == 0) return 0;
  double column_terms = 0;
  for (const int64_t c : column) column_terms += term(c);
  const double all = term(total);  // entropies below are times the total
  const double of_a = all - row_terms, of_b = all - column_terms, of_both = all - joint;
  if (of_a + of_b <= 0) return 0;
  return std::clamp(2 * (of_a + of_b - of_both) / (of_a + of_b), 0.0, 1.0);
}

}  // namespace focus
