#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "inspect/report.h"

namespace focus {

namespace {

using nlohmann::json;

double percent(const json& value) {
  return 100 * value.get<double>();
}

/// A token's text with what a terminal would act upon or hide made visible.
std::string visible(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ') {
      result += '_';
    } else if (c == '\n') {
      result += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result;
}

std::string joined_top(const json& top, size_t most) {
  std::string result;
  for (size_t x = 0; x < std::min(most, top.size()); ++x) {
    result +=
        fmt::format("{}{} {}", x > 0 ? ", " : "", visible(top[x][0].get<std::string>()), top[x][1].get<int64_t>());
  }
  return result;
}

std::string run_summary(const json& run) {
  std::string text;
  const auto line = [&](const char* name, const std::string& value) { text += fmt::format("{:<18}{}\n", name, value); };
  const json& balance = run["balance"];
  line("adapter",
       fmt::format("{}: {} routed layers, {} lists a set, window {}, {} sinks", run["adapter"].get<std::string>(),
                   run["layers"].size(), run["lists_a_set"].get<int64_t>(), run["window"].get<int64_t>(),
                   run["sinks"].get<int64_t>()));
  line("pairs kept", fmt::format("{:.2f}%", percent(run["pairs_kept"])));
  line("mass kept",
       fmt::format("{:.2f}% of full attention's: window {:.2f}%, sinks {:.2f}%, lists {:.2f}% (shuffled lists {:.2f}%)",
                   percent(run["mass_kept"]), percent(run["mass_window"]), percent(run["mass_sinks"]),
                   percent(run["mass_lists"]), percent(run["mass_lists_shuffled"])));
  line("dominance", fmt::format("{:.2f}% of tokens in the largest list of any layer", percent(run["dominance"])));
  line("balance", fmt::format("lists hold {:.2f} to {:.2f} times the mean; of {}, {} below {}, {} above {}, {} empty",
                              balance["lowest"].get<double>(), balance["highest"].get<double>(),
                              balance["lists"].get<int64_t>(), balance["below"].get<int64_t>(), kLowShare,
                              balance["above"].get<int64_t>(), kHighShare, balance["empty"].get<int64_t>()));
  line("purity", fmt::format("{:.3f} (shuffled lists {:.3f})", run["purity"].get<double>(),
                             run["purity_shuffled"].get<double>()));
  line("confidence", fmt::format("{:.3f} (shuffled lists {:.3f})", run["confidence"].get<double>(),
                                 run["confidence_shuffled"].get<double>()));
  line("token entropy", fmt::format("{:.2f} bits (shuffled lists {:.2f}); of the choice of a list {:.2f} bits",
                                    run["token_entropy"].get<double>(), run["token_entropy_shuffled"].get<double>(),
                                    run["choice_entropy"].get<double>()));
  text += fmt::format("\n{:<13}{:>9}{:>8}{:>10}{:>9}{:>10}  {}\n", "class", "of text", "lists", "shuffled", "purity",
                      "of class", "purest list");
  for (const json& entry : run["categories"]) {
    std::string purest;
    if (!entry["purest"].is_null()) {
      const json& list = entry["purest"];
      purest =
          fmt::format("layer {} set {} list {}, {:.0f}%: {}", list["layer"].get<int64_t>(), list["set"].get<int64_t>(),
                      list["list"].get<std::string>(), percent(list["purity"]), joined_top(list["top"], 5));
    }
    text += fmt::format("{:<13}{:>8.1f}%{:>8}{:>10}{:>9.3f}{:>9.1f}%  {}\n", entry["class"].get<std::string>(),
                        percent(entry["share_of_text"]), entry["lists"].get<int64_t>(),
                        entry["lists_shuffled"].get<int64_t>(), entry["purity"].get<double>(),
                        percent(entry["share_of_class"]), purest);
  }
  text += "\nlong-range pairs\n";
  std::vector<const json*> pairs;
  for (const json& pair : run["pairs"]) pairs.push_back(&pair);
  std::stable_sort(pairs.begin(), pairs.end(), [](const json* a, const json* b) {
    return (*a)["mass"].get<double>() > (*b)["mass"].get<double>();
  });
  for (size_t x = 0; x < std::min<size_t>(8, pairs.size()); ++x) {
    const json& pair = *pairs[x];
    text += fmt::format("  {} ({}) -> {} ({}), distance {}, layer {} head {}, mass {:.2f}, affinity {:.2f}\n",
                        visible(pair["query"][1].get<std::string>()), pair["query_position"].get<int64_t>(),
                        visible(pair["key"][1].get<std::string>()), pair["key_position"].get<int64_t>(),
                        pair["distance"].get<int64_t>(), pair["layer"].get<int64_t>(), pair["head"].get<int64_t>(),
                        pair["mass"].get<double>(), pair["affinity"].get<double>());
  }
  return text;
}

}  // namespace

std::string report_summary(const json& report) {
  std::string text = fmt::format("{:<18}{}\n{:<18}{} tokens in {} windows of up to {}, {} document(s)\n", "model",
                                 report["model"].get<std::string>(), "text", report["tokens"].get<int64_t>(),
                                 report["windows"].get<int64_t>(), report["context"].get<int64_t>(),
                                 report["documents"].get<int64_t>());
  for (const json& run : report["runs"]) text.append("\n").append(run_summary(run));
  if (!report["compared"].empty()) {
    double sum = 0;
    for (const json& layer : report["compared"]) sum += layer["agreement"].get<double>();
    text += fmt::format("\nagreement of the two adapters' lists: {:.3f} on average (normalised mutual information)\n",
                        sum / static_cast<double>(report["compared"].size()));
  }
  return text;
}

}  // namespace focus
