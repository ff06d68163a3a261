#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/routing/router.h"
#include "data/token_windows.h"
#include "inspect/collector.h"
#include "inspect/list_stats.h"
#include "inspect/token_class.h"
#include "models/model.h"

namespace focus {

struct InspectionOptions {
  int64_t context = 2048;        ///< Tokens a window.
  int64_t max_tokens = 50'000;   ///< Of the text, 0 for all.
  int64_t query_rows = 24;       ///< Sampled a layer and window.
  int64_t top_tokens = 8;        ///< Named of each list.
  int64_t excerpt_tokens = 320;  ///< In the text view.
  int64_t pairs_a_layer = 12;    ///< Long-range pairs named.
  uint64_t seed = 0;
};

/// The text that is looked at: disjoint windows, each a text of its own to the model, as in `focus eval`.
struct InspectedText {
  int64_t documents = 0;
  std::vector<int64_t> window_begin;  ///< Of each window within `ids`, and the end of the last.
  std::vector<int32_t> ids;           ///< All windows one after another.
  std::vector<TokenClass> classes;
  int64_t excerpt_window = 0;  ///< The window whose beginning is shown: of the longest ones the middle one.

  int64_t windows() const { return std::ssize(window_begin) - 1; }
  std::span<const int32_t> window(int64_t w) const {
    const auto begin = static_cast<size_t>(window_begin[static_cast<size_t>(w)]);
    return std::span(ids).subspan(begin, static_cast<size_t>(window_begin[static_cast<size_t>(w) + 1]) - begin);
  }
};

/// The first max_tokens tokens of the documents' windows. Throws Error, with both numbers, when no window is longer
/// than `sinks`, so that nothing would be routed.
InspectedText inspected_text(const std::vector<Document>& documents, TokenTexts& texts,
                             const InspectionOptions& options, int64_t sinks);

/// One adapter's lists over a text.
struct Inspection {
  RoutingConfig config;
  int64_t lists = 0;                         ///< Content lists of a set: K, or the patterns of the symmetric form.
  std::vector<std::string> list_names;       ///< By id.
  std::vector<std::vector<int64_t>> probes;  ///< [routed layer][set]
  std::vector<int64_t> dense_layers;
  PairCount pairs;               ///< Of all layers, as in `focus eval`.
  std::vector<int64_t> lengths;  ///< At which records count pairs.
  std::vector<LayerRecord> layers;
  std::vector<std::vector<std::vector<ListStats>>> stats, shuffled_stats;  ///< [routed layer][set][list id]
  /// Agreement of every two routed layers, mean over their sets (within a layer over different sets; 1 with one set).
  std::vector<std::vector<double>> agreement;
  double shuffled_agreement = 0;  ///< Mean of neighbouring layers, one of them shuffled.
};

/// Runs the model over the text with this router, and with trained scalars of the heads if there are any. Calls
/// `progress(done windows, windows)` and gives up with an empty `layers` when it returns false. Throws Error as forward
/// passes do.
Inspection inspect(const CausalLM& model, const std::shared_ptr<const Router>& router, const InspectedText& text,
                   const InspectionOptions& options, const std::function<bool(int64_t, int64_t)>& progress = {},
                   const std::shared_ptr<const HeadScales>& scales = nullptr);

}  // namespace focus
