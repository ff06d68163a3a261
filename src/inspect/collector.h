#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "attention/methods/focus_attention.h"
#include "inspect/attention_sample.h"

namespace focus {

/// What is measured on the way.
struct CollectorOptions {
  int64_t query_rows = 24;       ///< Query rows sampled a layer and window for the attention mass.
  int64_t excerpt_window = 0;    ///< Number of the window whose beginning is kept for the text view.
  int64_t excerpt_tokens = 0;    ///< Tokens kept of it, 0 for none.
  int64_t excerpt_keys = 5;      ///< Strongest keys kept for every token of it.
  std::vector<int64_t> lengths;  ///< Text lengths, ascending, at which pairs are counted.
  uint64_t seed = 0;
};

/// The text view's data of one layer. Tokens are those of the excerpt; Hg list sets.
struct ExcerptLayer {
  std::vector<std::vector<int32_t>> key_group;            ///< [Hg][N]
  std::vector<std::vector<std::vector<int32_t>>> probes;  ///< [Hg][N][lists probed, sinks' list 0 left out]
  struct Key {
    int32_t position = 0;
    float mass = 0;  ///< Share of the sparse attention, mean of the set's query heads.
  };
  std::vector<std::vector<std::vector<Key>>> keys;  ///< [Hg][N][up to excerpt_keys], strongest first.
};

/// Everything seen of one routed layer.
struct LayerRecord {
  int64_t layer = 0;
  /// List of every token by list set, in the order of the text; -1 for sinks and tokens without a list. [Hg][tokens]
  std::vector<std::vector<int16_t>> lists;
  std::vector<std::vector<int16_t>> shuffled;  ///< The same permuted within every window.
  /// Sums over tokens by set and list id: softmax probability of the token's own list, and of its shuffled one.
  std::vector<std::vector<double>> confidence, shuffled_confidence;
  std::vector<double> choice_entropy;  ///< Sum over tokens of the softmax's entropy in bits. [Hg]
  MassSums mass;
  PairCount pairs;
  std::vector<int64_t> kept_by_length, causal_by_length;
  std::vector<FarPair> far;     ///< Positions count over the whole text.
  std::vector<float> affinity;  ///< Of each far pair: cosine of index query and key (symmetric: of memberships).
  ExcerptLayer excerpt;
};

/// Focus attention that watches: runs the model as `focus eval` does and records where tokens go and what lists reach.
/// One sequence at a time, without a cache. Memory is 4 bytes a token, layer and list set beside counters.
class InspectAttention : public FocusAttention {
 public:
  InspectAttention(std::shared_ptr<const Router> router, CollectorOptions options,
                   std::shared_ptr<const HeadScales> scales = nullptr);

  at::Tensor attend(const AttentionInput& input) override;
  /// Call after every window with its number of tokens.
  void end_window(int64_t tokens);

  /// The records of the routed layers, in order; leaves none behind.
  std::vector<LayerRecord> take_layers() { return std::exchange(layers_, {}); }

 protected:
  Routes route(const AttentionInput& input, const at::Tensor& position_in_document) override;

 private:
  struct SoftChoice;
  SoftChoice soft_choice(int64_t layer, const at::Tensor& hidden) const;
  void observe(const AttentionInput& input, LayerRecord& record);
  void observe_lists(const SoftChoice& soft, const WindowLists& lists, LayerRecord& record);
  void observe_mass(const AttentionInput& input, const SoftChoice& soft, const WindowLists& lists, LayerRecord& record);
  void keep_excerpt(const AttentionInput& input, const WindowLists& lists, LayerRecord& record) const;

  CollectorOptions options_;
  Routes routes_;
  std::vector<LayerRecord> layers_;
  int64_t window_ = 0;  // number of the present window
  int64_t offset_ = 0;  // tokens before it
};

}  // namespace focus
