#include "inspect/inspection.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace focus {

namespace {

// Powers of two from 64 on, and the context itself.
std::vector<int64_t> count_lengths(int64_t context) {
  std::vector<int64_t> lengths;
  for (int64_t length = 64; length < context; length *= 2) lengths.push_back(length);
  lengths.push_back(context);
  return lengths;
}

std::vector<std::string> list_names(const Router& router) {
  std::vector<std::string> names = {router.config().global_group ? "global" : "sinks"};
  for (int64_t list = 1; list <= router.lists(); ++list) {
    const PatternTable* patterns = router.patterns();
    if (patterns == nullptr) {
      names.push_back(std::to_string(list));
      continue;
    }
    std::vector<int32_t> groups;
    for (const int32_t g : patterns->members(list - 1)) groups.push_back(g + 1);
    names.push_back(fmt::format("{}", fmt::join(groups, "+")));
  }
  return names;
}

void measure_agreement(Inspection& result) {
  const int64_t layers = std::ssize(result.layers);
  result.agreement.assign(static_cast<size_t>(layers), std::vector<double>(static_cast<size_t>(layers)));
  std::vector<double> chance(static_cast<size_t>(layers));
  at::parallel_for(0, layers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t a = begin; a < end; ++a) {
      const auto& rows = result.layers[static_cast<size_t>(a)].lists;
      for (int64_t b = 0; b < layers; ++b) {
        const auto& columns = result.layers[static_cast<size_t>(b)].lists;
        double sum = 0;
        int64_t n = 0;
        for (size_t s = 0; s < rows.size(); ++s) {
          for (size_t t = 0; t < columns.size(); ++t) {
            if (b < a || (a == b && s == t)) continue;
            sum += list_agreement(rows[s], columns[t]);
            ++n;
          }
        }
        if (b >= a) result.agreement[static_cast<size_t>(a)][static_cast<size_t>(b)] = n > 0 ? sum / n : 1.0;
      }
      const auto& next = result.layers[static_cast<size_t>((a + 1) % layers)].shuffled;
      chance[static_cast<size_t>(a)] = list_agreement(rows.front(), next.front());
    }
  });
  for (int64_t a = 0; a < layers; ++a) {
    for (int64_t b = 0; b < a; ++b) {
      result.agreement[static_cast<size_t>(a)][static_cast<size_t>(b)] =
          result.agreement[static_cast<size_t>(b)][static_cast<size_t>(a)];
    }
    result.shuffled_agreement += chance[static_cast<size_t>(a)] / static_cast<double>(layers);
  }
}

void measure_lists(Inspection& result, const InspectedText& text, int64_t top_tokens) {
  const int64_t layers = std::ssize(result.layers);
  result.stats.resize(static_cast<size_t>(layers));
  result.shuffled_stats.resize(static_cast<size_t>(layers));
  at::parallel_for(0, layers, 1, [&](int64_t begin, int64_t end) {
    for (auto l = static_cast<size_t>(begin); l < static_cast<size_t>(end); ++l) {
      const LayerRecord& record = result.layers[l];
      for (size_t s = 0; s < record.lists.size(); ++s) {
        const auto of = [&](const std::vector<int16_t>& lists, int64_t top) {
          return list_stats(lists, text.ids, text.classes, result.lists + 1, top);
        };
        result.stats[l].push_back(of(record.lists[s], top_tokens));
        result.shuffled_stats[l].push_back(of(record.shuffled[s], 0));
      }
    }
  });
}

}  // namespace

InspectedText inspected_text(const std::vector<Document>& documents, TokenTexts& texts,
                             const InspectionOptions& options, int64_t sinks) {
  InspectedText text;
  text.window_begin = {0};
  int64_t longest = 0;
  int64_t document = -1;
  std::vector<TokenClass> classes;
  for (const EvalWindow& window : eval_windows(documents, options.context, options.context)) {
    int64_t size = window.end - window.begin;
    if (options.max_tokens > 0) size = std::min(size, options.max_tokens - std::ssize(text.ids));
    if (size < 2) break;
    const Document& ids = documents[static_cast<size_t>(window.document)];
    if (window.document != document) {
      document = window.document;
      classes = texts.classes(ids);
      ++text.documents;
    }
    text.ids.insert(text.ids.end(), ids.begin() + window.begin, ids.begin() + window.begin + size);
    text.classes.insert(text.classes.end(), classes.begin() + window.begin, classes.begin() + window.begin + size);
    text.window_begin.push_back(std::ssize(text.ids));
    longest = std::max(longest, size);
  }
  require(longest > sinks + 1,
          "the longest text has {} tokens, expected at least {}: the first {} are sinks, in no list", longest,
          sinks + 2, sinks);
  std::vector<int64_t> candidates;
  for (int64_t w = 0; w < text.windows(); ++w) {
    if (std::ssize(text.window(w)) == longest) candidates.push_back(w);
  }
  text.excerpt_window = candidates[candidates.size() / 2];
  return text;
}

Inspection inspect(const CausalLM& model, const std::shared_ptr<const Router>& router, const InspectedText& text,
                   const InspectionOptions& options, const std::function<bool(int64_t, int64_t)>& progress,
                   const std::shared_ptr<const HeadScales>& scales) {
  const at::NoGradGuard no_grad;
  Inspection result;
  result.config = router->config();
  result.lists = router->lists();
  result.list_names = list_names(*router);
  result.lengths = count_lengths(options.context);
  for (int64_t layer = 0; layer < model.config().num_layers; ++layer) {
    if (router->has_layer(layer)) {
      result.probes.push_back(router->probes(layer));
    } else {
      result.dense_layers.push_back(layer);
    }
  }
  InspectAttention method(router,
                          {.query_rows = options.query_rows,
                           .excerpt_window = text.excerpt_window,
                           .excerpt_tokens = options.excerpt_tokens,
                           .lengths = result.lengths,
                           .seed = options.seed},
                          scales);
  for (int64_t w = 0; w < text.windows(); ++w) {
    const std::span<const int32_t> ids = text.window(w);
    const at::Tensor input = at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong).unsqueeze(0);
    model.forward(input, method);
    method.end_window(std::ssize(ids));
    if (progress && !progress(w + 1, text.windows())) return result;
  }
  result.pairs = method.pairs();
  result.layers = method.take_layers();
  measure_lists(result, text, options.top_tokens);
  measure_agreement(result);
  return result;
}

}  // namespace focus
