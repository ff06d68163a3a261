#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "data/token_source.h"

namespace focus {

/// All tokens of all documents; throws Error with both numbers (naming `name`) when there are fewer than `needed`.
int64_t require_tokens(const TokenSource& source, int64_t needed, const std::string& name);
int64_t require_tokens(std::span<const Document> documents, int64_t needed, const std::string& name);

/// One forward pass of a perplexity: tokens [begin, end) of a document, of which the last `scored` are predicted and
/// counted. Row t of the logits (from 0) predicts token begin + t + 1; the scored targets are positions end - scored
/// ... end - 1.
struct EvalWindow {
  int64_t document = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t scored = 0;
};

/// Windows of the strided perplexity that Hugging Face documents ("Perplexity of fixed-length models"): each document
/// by itself, windows of `context` tokens every `stride` tokens; the first window scores all its tokens but the first
/// (which nothing predicts), each later one only the tokens after the end of the window before, `stride` of them and
/// fewer at the end. So with stride < context every token but the first of each document is scored exactly once, after
/// the first window with at least context - stride tokens before it. With stride == context (disjoint windows) the
/// first token of every window is left out, since nothing in the window predicts it. Windows without a scored token are
/// left out. (Hugging Face's script counts one token less for each window when it averages; here every scored token
/// counts once.) Throws UsageError unless context >= 2 and 1 <= stride <= context.
std::vector<EvalWindow> eval_windows(std::span<const Document> documents, int64_t context, int64_t stride);

/// Endless training windows of exactly `length` tokens in an order shuffled by the seed, anew for every epoch. Each
/// document is cut from its start into windows; a rest shorter than that is joined with the rests that follow (so short
/// documents pack together), and what remains at the very end is left out. The order depends on the data, the length
/// and the seed only, not on the platform.
class TrainWindows {
 public:
  struct Window {
    std::vector<int32_t> ids;
    std::vector<int32_t> document_start;  ///< For every position the first position of its document within the window.
  };

  /// Tokens are read when their window is wanted; memory grows with the number of documents only. Throws Error with
  /// both numbers when the source holds fewer than `length` tokens; `name` names it.
  TrainWindows(std::shared_ptr<const TokenSource> source, int64_t length, uint64_t seed, const std::string& name);
  /// The same over a copy of documents.
  TrainWindows(std::span<const Document> documents, int64_t length, uint64_t seed, const std::string& name);

  /// Tokens a window.
  int64_t length() const { return length_; }
  int64_t windows_per_epoch() const { return static_cast<int64_t>(order_.size()); }
  /// Windows handed out so far, over all epochs.
  int64_t position() const { return position_; }
  int64_t epoch() const { return position_ / windows_per_epoch(); }
  Window next();
  /// Passes over the next windows, as if they had been handed out.
  void skip(int64_t count);

  /// The state to save. restore() makes next() go on exactly where it was; throws Error when the state was saved with
  /// other data, another length or seed, naming what differs.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  void shuffle(int64_t epoch);
  Window window(int64_t index) const;

  std::shared_ptr<const TokenSource> source_;
  int64_t length_;
  uint64_t seed_;
  std::vector<int64_t> whole_before_;  // Whole windows of the documents before each one, then of all.
  std::vector<int64_t> rest_before_;   // The same of tokens left over.
  std::vector<int64_t> order_;         // Of the epoch in use.
  int64_t shuffled_epoch_ = -1;
  int64_t position_ = 0;
};

}  // namespace focus
