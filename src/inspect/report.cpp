#include "inspect/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"

namespace focus {

namespace {

using nlohmann::json;

/// Four decimals, which is more than the text's length supports, keep the file small.
double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0.0;
}

json ratios(const std::vector<int64_t>& part, const std::vector<int64_t>& whole) {
  json result = json::array();
  for (size_t x = 0; x < part.size(); ++x) {
    // Lengths that no window reaches are null.
    result.push_back(whole[x] > 0 ? json(rounded(ratio(static_cast<double>(part[x]), static_cast<double>(whole[x]))))
                                  : json());
  }
  return result;
}

/// Means over tokens, of one set or summed up over several.
struct Means {
  double tokens = 0, purity = 0, shuffled_purity = 0, confidence = 0, shuffled_confidence = 0, entropy = 0,
         shuffled_entropy = 0, choice_entropy = 0;

  void add(const std::vector<ListStats>& lists, const std::vector<ListStats>& shuffled, const LayerRecord& record,
           size_t set) {
    const MeanStats real = mean_stats(lists);
    const MeanStats random = mean_stats(shuffled);
    const auto n = static_cast<double>(real.tokens);
    tokens += n;
    purity += n * real.purity;
    shuffled_purity += n * random.purity;
    entropy += n * real.token_entropy;
    shuffled_entropy += n * random.token_entropy;
    confidence += std::reduce(record.confidence[set].begin(), record.confidence[set].end());
    shuffled_confidence += std::reduce(record.shuffled_confidence[set].begin(), record.shuffled_confidence[set].end());
    choice_entropy += record.choice_entropy[set];
  }
  void write(json& out) const {
    const auto mean = [&](double sum) { return rounded(ratio(sum, tokens)); };
    out["purity"] = mean(purity);
    out["purity_shuffled"] = mean(shuffled_purity);
    out["confidence"] = mean(confidence);
    out["confidence_shuffled"] = mean(shuffled_confidence);
    out["token_entropy"] = mean(entropy);
    out["token_entropy_shuffled"] = mean(shuffled_entropy);
    out["choice_entropy"] = mean(choice_entropy);
  }
};

/// How evenly tokens fill the lists 1 .. K of each set.
struct Balance {
  int64_t lists = 0, below = 0, above = 0, empty = 0;
  double lowest = INFINITY, highest = 0, largest_share = 0;

  void add(const std::vector<ListStats>& stats) {
    double total = 0;
    for (size_t g = 1; g < stats.size(); ++g) total += static_cast<double>(stats[g].size);
    if (total == 0) return;
    const double count = static_cast<double>(stats.size() - 1);
    for (size_t g = 1; g < stats.size(); ++g) {
      const double share = static_cast<double>(stats[g].size) / total;
      ++lists;
      if (stats[g].size == 0) ++empty;
      if (share * count < kLowShare) ++below;
      if (share * count > kHighShare) ++above;
      lowest = std::min(lowest, share * count);
      highest = std::max(highest, share * count);
      largest_share = std::max(largest_share, share);
    }
  }
  json write() const {
    return {{"lists", lists},
            {"empty", empty},
            {"below", below},
            {"above", above},
            {"lowest", rounded(lists > 0 ? lowest : 0)},
            {"highest", rounded(highest)}};
  }
};

void write_mass(json& out, const MassSums& mass) {
  const auto part = [&](double sum) { return rounded(ratio(sum, mass.rows)); };
  out["mass_kept"] = part(mass.window + mass.sinks + mass.lists);
  out["mass_window"] = part(mass.window);
  out["mass_sinks"] = part(mass.sinks);
  out["mass_lists"] = part(mass.lists);
  out["mass_lists_shuffled"] = part(mass.shuffled_lists);
}

json distances(const MassSums& mass) {
  json result = {
      {"begin", json::array()}, {"mass", json::array()}, {"mass_kept", json::array()}, {"pairs_kept", json::array()}};
  for (size_t b = 0; b < kDistanceBins && mass.pairs[b] > 0; ++b) {
    result["begin"].push_back(b == 0 ? 0 : int64_t{1} << (b - 1));
    result["mass"].push_back(rounded(ratio(mass.mass[b], mass.rows)));
    result["mass_kept"].push_back(rounded(ratio(mass.mass_kept[b], mass.rows)));
    result["pairs_kept"].push_back(
        rounded(ratio(static_cast<double>(mass.pairs_kept[b]), static_cast<double>(mass.pairs[b]))));
  }
  return result;
}

json list_columns(const Inspection& inspection, size_t layer, size_t set, TokenTexts& texts) {
  const LayerRecord& record = inspection.layers[layer];
  const std::vector<ListStats>& lists = inspection.stats[layer][set];
  const std::vector<ListStats>& shuffled = inspection.shuffled_stats[layer][set];
  json columns;
  for (const char* name : {"list", "size", "class", "purity", "purity_shuffled", "confidence", "confidence_shuffled",
                           "token_entropy", "token_entropy_shuffled", "classes", "top"}) {
    columns[name] = json::array();
  }
  for (size_t g = inspection.config.global_group ? 0 : 1; g < lists.size(); ++g) {
    const auto size = static_cast<double>(lists[g].size);
    columns["list"].push_back(inspection.list_names[g]);
    columns["size"].push_back(lists[g].size);
    columns["class"].push_back(static_cast<int>(lists[g].majority));
    columns["purity"].push_back(rounded(lists[g].purity));
    columns["purity_shuffled"].push_back(rounded(shuffled[g].purity));
    columns["confidence"].push_back(rounded(ratio(record.confidence[set][g], size)));
    columns["confidence_shuffled"].push_back(rounded(ratio(record.shuffled_confidence[set][g], size)));
    columns["token_entropy"].push_back(rounded(lists[g].token_entropy));
    columns["token_entropy_shuffled"].push_back(rounded(shuffled[g].token_entropy));
    columns["classes"].push_back(lists[g].classes);
    json top = json::array();
    for (const auto& [token, count] : lists[g].top) top.push_back({texts.label(token), count});
    columns["top"].push_back(std::move(top));
  }
  return columns;
}

/// For every class: lists in which it is the majority with at least half of the tokens, what share of the class they
/// hold, and the purest one with at least half the mean size.
json categories(const Inspection& inspection, const InspectedText& text, TokenTexts& texts) {
  std::array<int64_t, kTokenClasses> in_text{};
  for (const TokenClass c : text.classes) ++in_text[static_cast<size_t>(c)];
  struct Category {
    int64_t lists = 0, shuffled_lists = 0;
    double tokens = 0, members = 0, sets = 0;
    double best = 0;
    size_t layer = 0, set = 0, list = 0;
  };
  std::array<Category, kTokenClasses> found{};
  int64_t all_sets = 0;
  for (size_t l = 0; l < inspection.stats.size(); ++l) {
    for (size_t s = 0; s < inspection.stats[l].size(); ++s, ++all_sets) {
      const std::vector<ListStats>& lists = inspection.stats[l][s];
      const double enough = 0.5 * static_cast<double>(text.ids.size()) / static_cast<double>(inspection.lists);
      for (size_t g = 0; g < lists.size(); ++g) {
        const ListStats& shuffled = inspection.shuffled_stats[l][s][g];
        if (shuffled.size > 0 && shuffled.purity >= 0.5) ++found[static_cast<size_t>(shuffled.majority)].shuffled_lists;
        if (lists[g].size == 0 || lists[g].purity < 0.5) continue;
        Category& category = found[static_cast<size_t>(lists[g].majority)];
        ++category.lists;
        category.tokens += static_cast<double>(lists[g].size);
        category.members += lists[g].purity * static_cast<double>(lists[g].size);
        if (static_cast<double>(lists[g].size) >= enough && lists[g].purity > category.best) {
          category.best = lists[g].purity;
          category.layer = l;
          category.set = s;
          category.list = g;
        }
      }
    }
  }
  json result = json::array();
  for (size_t c = 0; c < kTokenClasses; ++c) {
    const Category& category = found[c];
    json entry = {
        {"class", token_class_names()[c]},
        {"share_of_text", rounded(ratio(static_cast<double>(in_text[c]), static_cast<double>(text.ids.size())))},
        {"lists", category.lists},
        {"lists_shuffled", category.shuffled_lists},
        {"purity", rounded(ratio(category.members, category.tokens))},
        {"share_of_class", rounded(ratio(category.members, static_cast<double>(in_text[c] * all_sets)))},
        {"purest", nullptr}};
    if (category.best > 0) {
      const ListStats& list = inspection.stats[category.layer][category.set][category.list];
      json top = json::array();
      for (const auto& [token, count] : list.top) top.push_back({texts.label(token), count});
      entry["purest"] = {{"layer", inspection.layers[category.layer].layer},
                         {"set", category.set},
                         {"list", inspection.list_names[category.list]},
                         {"size", list.size},
                         {"purity", rounded(list.purity)},
                         {"top", std::move(top)}};
    }
    result.push_back(std::move(entry));
  }
  return result;
}

/// The token with up to three before and after it, within its window.
json in_context(const InspectedText& text, TokenTexts& texts, int64_t position) {
  const auto next = std::upper_bound(text.window_begin.begin(), text.window_begin.end(), position);
  const int64_t begin = *(next - 1);
  const auto join = [&](int64_t from, int64_t to) {
    std::string joined;
    for (int64_t t = std::max(from, begin); t < std::min(to, *next); ++t)
      joined += texts.text(text.ids[static_cast<size_t>(t)]);
    return joined;
  };
  return {join(position - 3, position), texts.label(text.ids[static_cast<size_t>(position)]),
          join(position + 1, position + 4)};
}

json far_pairs(const Inspection& inspection, const LayerRecord& record, const InspectedText& text, TokenTexts& texts,
               int64_t wanted) {
  std::vector<size_t> order(record.far.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return record.far[a].mass > record.far[b].mass; });
  std::set<std::pair<int32_t, int32_t>> tokens_seen;
  std::map<int64_t, int> key_seen;
  json result = json::array();
  for (const size_t x : order) {
    if (std::ssize(result) >= wanted) break;
    const FarPair& pair = record.far[x];
    const auto tokens = std::pair(text.ids[static_cast<size_t>(pair.query)], text.ids[static_cast<size_t>(pair.key)]);
    if (!tokens_seen.insert(tokens).second || ++key_seen[pair.key] > 2) continue;
    const int64_t begin = *(std::upper_bound(text.window_begin.begin(), text.window_begin.end(), pair.query) - 1);
    result.push_back({{"layer", record.layer},
                      {"set", pair.set},
                      {"head", pair.head},
                      {"list", inspection.list_names[static_cast<size_t>(pair.list)]},
                      {"query", in_context(text, texts, pair.query)},
                      {"key", in_context(text, texts, pair.key)},
                      {"query_position", pair.query - begin},
                      {"key_position", pair.key - begin},
                      {"query_class", static_cast<int>(text.classes[static_cast<size_t>(pair.query)])},
                      {"key_class", static_cast<int>(text.classes[static_cast<size_t>(pair.key)])},
                      {"distance", pair.query - pair.key},
                      {"mass", rounded(pair.mass)},
                      {"affinity", rounded(record.affinity[x])}});
  }
  return result;
}

json layer_report(const Inspection& inspection, size_t l, TokenTexts& texts) {
  const LayerRecord& record = inspection.layers[l];
  json layer = {
      {"layer", record.layer},
      {"pairs_kept", rounded(ratio(static_cast<double>(record.pairs.kept), static_cast<double>(record.pairs.causal)))},
      {"pairs_by_length", ratios(record.kept_by_length, record.causal_by_length)}};
  write_mass(layer, record.mass);
  Means means;
  Balance balance;
  json sets = json::array();
  for (size_t s = 0; s < inspection.stats[l].size(); ++s) {
    Means mine;
    mine.add(inspection.stats[l][s], inspection.shuffled_stats[l][s], record, s);
    means.add(inspection.stats[l][s], inspection.shuffled_stats[l][s], record, s);
    balance.add(inspection.stats[l][s]);
    json set = {{"set", s}, {"probes", inspection.probes[l][s]}, {"lists", list_columns(inspection, l, s, texts)}};
    mine.write(set);
    sets.push_back(std::move(set));
  }
  means.write(layer);
  layer["dominance"] = rounded(balance.largest_share);
  layer["balance"] = balance.write();
  layer["sets"] = std::move(sets);
  return layer;
}

}  // namespace

json run_report(const std::string& name, const Inspection& inspection, const InspectedText& text, TokenTexts& texts,
                const InspectionOptions& options) {
  const RoutingConfig& config = inspection.config;
  json run = {{"adapter", name},
              {"groups", config.groups},
              {"groups_per_token", config.groups_per_token},
              {"window", config.window},
              {"sinks", config.sinks},
              {"symmetric", config.symmetric},
              {"shared", config.shared},
              {"global_group", config.global_group},
              {"lists_a_set", inspection.lists},
              {"dense_layers", inspection.dense_layers},
              {"pairs_kept", rounded(ratio(static_cast<double>(inspection.pairs.kept),
                                           static_cast<double>(inspection.pairs.causal)))}};
  MassSums mass;
  Means means;
  Balance balance;
  std::vector<int64_t> kept(inspection.lengths.size()), causal(inspection.lengths.size());
  run["layers"] = json::array();
  run["pairs"] = json::array();
  for (size_t l = 0; l < inspection.layers.size(); ++l) {
    const LayerRecord& record = inspection.layers[l];
    mass += record.mass;
    for (size_t x = 0; x < kept.size(); ++x) {
      kept[x] += record.kept_by_length[x];
      causal[x] += record.causal_by_length[x];
    }
    for (size_t s = 0; s < inspection.stats[l].size(); ++s) {
      means.add(inspection.stats[l][s], inspection.shuffled_stats[l][s], record, s);
      balance.add(inspection.stats[l][s]);
    }
    run["layers"].push_back(layer_report(inspection, l, texts));
    for (json& pair : far_pairs(inspection, record, text, texts, options.pairs_a_layer))
      run["pairs"].push_back(std::move(pair));
  }
  write_mass(run, mass);
  means.write(run);
  run["dominance"] = rounded(balance.largest_share);
  run["balance"] = balance.write();
  run["lengths"] = inspection.lengths;
  run["pairs_by_length"] = ratios(kept, causal);
  run["distance"] = distances(mass);
  run["categories"] = categories(inspection, text, texts);
  json matrix = json::array();
  for (const std::vector<double>& row : inspection.agreement) {
    json& line = matrix.emplace_back(json::array());
    for (const double value : row) line.push_back(std::round(value * 1000) / 1000);
  }
  run["agreement"] = {{"matrix", std::move(matrix)}, {"shuffled", rounded(inspection.shuffled_agreement)}};
  return run;
}

json compare_runs(const Inspection& a, const Inspection& b) {
  json result = json::array();
  for (const LayerRecord& mine : a.layers) {
    for (const LayerRecord& other : b.layers) {
      if (mine.layer != other.layer) continue;
      const size_t sets = std::min(mine.lists.size(), other.lists.size());
      double sum = 0;
      for (size_t s = 0; s < sets; ++s) sum += list_agreement(mine.lists[s], other.lists[s]);
      result.push_back({{"layer", mine.layer}, {"agreement", rounded(sum / static_cast<double>(sets))}});
    }
  }
  return result;
}

}  // namespace focus
