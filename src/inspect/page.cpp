#include "inspect/page.h"

#include <algorithm>
#include <numeric>

#include "inspect/page_assets.h"
#include "page/page.h"
#include "page/page_assets.h"

namespace focus {

namespace {

using nlohmann::json;

constexpr int64_t kListBudget = 1'300'000;  // bytes of the page for tables of lists
constexpr int64_t kListBytes = 75;          // of a list's figures, and of one of its tokens
constexpr int64_t kTokenBytes = 17;
constexpr int64_t kMinTokens = 3;

// Keeps the entries `kept` (ascending) of every column.
void keep_rows(json& columns, const std::vector<size_t>& kept) {
  for (json& column : columns) {
    json chosen = json::array();
    for (const size_t x : kept) chosen.push_back(std::move(column[x]));
    column = std::move(chosen);
  }
}

// Shortens lists of tokens, then lists of lists, until they fit.
void shorten_lists(json& report) {
  int64_t lists = 0, sets = 0;
  for (const json& run : report["runs"]) {
    for (const json& layer : run["layers"]) {
      for (const json& set : layer["sets"]) {
        lists += std::ssize(set["lists"]["list"]);
        ++sets;
      }
    }
  }
  const int64_t tokens = std::max(kMinTokens, (kListBudget / std::max<int64_t>(1, lists) - kListBytes) / kTokenBytes);
  const auto rows = static_cast<size_t>(
      std::max<int64_t>(4, kListBudget / (kListBytes + kMinTokens * kTokenBytes) / std::max<int64_t>(1, sets)));
  for (json& run : report["runs"]) {
    for (json& layer : run["layers"]) {
      for (json& set : layer["sets"]) {
        json& columns = set["lists"];
        columns.erase("classes");
        const std::vector<int64_t> size = columns["size"].get<std::vector<int64_t>>();
        set["lists_left_out"] = size.size() > rows ? size.size() - rows : 0;
        if (size.size() > rows) {
          std::vector<size_t> order(size.size());
          std::iota(order.begin(), order.end(), size_t{0});
          std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return size[a] > size[b]; });
          order.resize(rows);
          std::sort(order.begin(), order.end());
          keep_rows(columns, order);
        }
        for (json& top : columns["top"]) {
          if (std::ssize(top) > tokens) top.erase(top.begin() + tokens, top.end());
        }
      }
    }
  }
}

}  // namespace

std::string html_page(const json& report, const std::vector<json>& excerpts) {
  json data = report;
  shorten_lists(data);
  for (size_t r = 0; r < excerpts.size(); ++r) data["runs"][r]["excerpt"] = excerpts[r];
  return make_page(kReportHtml, {kPageCss, kReportCss}, {kChartsJs, kCommonJs, kTextViewJs, kReportJs}, data);
}

}  // namespace focus
