#include <algorithm>
#include <cmath>
#include <string_view>

#include "inspect/report.h"

namespace focus {

namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string result;
  result.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t word = 0;
    for (size_t x = 0; x < 3; ++x) {
      word = word << 8 | (at + x < bytes.size() ? static_cast<unsigned char>(bytes[at + x]) : 0u);
    }
    for (size_t x = 0; x < 4; ++x) result += at + x > bytes.size() ? '=' : kDigits[word >> (18 - 6 * x) & 63];
  }
  return result;
}

void append_u16(std::string& out, int64_t value) {
  out += static_cast<char>(value & 255);
  out += static_cast<char>(value >> 8 & 255);
}

/// One layer: key_group u16 [Hg][N]; probes as bits, list 1 the lowest bit of the first byte, [Hg][N][(lists + 7) / 8];
/// keys u16 [Hg][N][M] (65535 unused) with mass u8 (255 is all).
nlohmann::json pack(const ExcerptLayer& layer, int64_t number, int64_t lists, size_t keys) {
  std::string group, probes, position, mass;
  for (size_t s = 0; s < layer.key_group.size(); ++s) {
    for (size_t t = 0; t < layer.key_group[s].size(); ++t) {
      append_u16(group, layer.key_group[s][t]);
      std::string bits(static_cast<size_t>((lists + 7) / 8), '\0');
      for (const int32_t list : layer.probes[s][t]) {
        if (list > 0) bits[static_cast<size_t>((list - 1) / 8)] |= static_cast<char>(1 << ((list - 1) % 8));
      }
      probes += bits;
      const auto& row = layer.keys[s][t];
      for (size_t x = 0; x < keys; ++x) {
        append_u16(position, x < row.size() ? row[x].position : 0xffff);
        mass += static_cast<char>(x < row.size() ? std::lround(255 * std::clamp(row[x].mass, 0.0F, 1.0F)) : 0);
      }
    }
  }
  return {{"layer", number},          {"sets", layer.key_group.size()}, {"group", base64(group)},
          {"probes", base64(probes)}, {"keys", base64(position)},       {"mass", base64(mass)}};
}

}  // namespace

nlohmann::json excerpt_data(const Inspection& inspection, const InspectedText& text, TokenTexts& texts,
                            const InspectionOptions& options, int64_t budget) {
  const std::span<const int32_t> window = text.window(text.excerpt_window);
  const auto n = std::min(options.excerpt_tokens, std::ssize(window));
  nlohmann::json result = {{"window", text.excerpt_window},
                           {"tokens", nlohmann::json::array()},
                           {"classes", nlohmann::json::array()},
                           {"layers", nlohmann::json::array()}};
  const auto first = static_cast<size_t>(text.window_begin[static_cast<size_t>(text.excerpt_window)]);
  for (int64_t t = 0; t < n; ++t) {
    result["tokens"].push_back(texts.label(window[static_cast<size_t>(t)]));
    result["classes"].push_back(static_cast<int>(text.classes[first + static_cast<size_t>(t)]));
  }
  size_t keys = 0;
  int64_t bytes = 0;
  for (const LayerRecord& record : inspection.layers) {
    for (const auto& set : record.excerpt.keys) {
      for (const auto& row : set) keys = std::max(keys, row.size());
    }
  }
  for (const LayerRecord& record : inspection.layers) {
    for (const auto& set : record.excerpt.keys) {
      bytes += std::ssize(set) * (2 + (inspection.lists + 7) / 8 + 3 * static_cast<int64_t>(keys)) * 4 / 3;
    }
  }
  const int64_t every = std::max<int64_t>(1, (bytes + budget - 1) / std::max<int64_t>(1, budget));
  for (size_t l = 0; l < inspection.layers.size(); l += static_cast<size_t>(every)) {
    result["layers"].push_back(pack(inspection.layers[l].excerpt, inspection.layers[l].layer, inspection.lists, keys));
  }
  result["keys_a_token"] = keys;
  result["every"] = every;
  return result;
}

}  // namespace focus
