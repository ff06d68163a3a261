#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/method.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace focus {

/// Tokens of which the last `scored` are to be predicted from those before them.
struct LikelihoodRequest {
  std::vector<int32_t> ids;
  int64_t scored = 0;
  bool truncated = false;  ///< Tokens were cut off on the left to fit the model's context.
  int64_t item = -1;       ///< Neighbours of the same item (>= 0) may share the work on their common beginning.
};

struct Likelihood {
  double log_likelihood = 0;  ///< Sum over the scored tokens, nats.
  bool greedy = false;        ///< All of them are the most likely ones.
};

/// Texts to requests, with the tokenisation of EleutherAI's lm-evaluation-harness 0.4 (TemplateLM, HFLM).
class RequestEncoder {
 public:
  /// `prefix_id` stands before a text that nothing comes before: the tokenizer's beginning of text, or its end of text
  /// where it has none. `max_length`: positions of the model.
  RequestEncoder(const Tokenizer& tokenizer, std::optional<int32_t> prefix_id, int64_t max_length);

  /// A text with the special tokens that the tokenizer adds, unless it brings the prefix along itself.
  std::vector<int32_t> encode(std::string_view text) const;
  /// White space at the context's end counts as the continuation's; the continuation's tokens are those of both
  /// together beyond as many as the context alone has. Of too many tokens the last max_length + 1 stay. Throws Error
  /// when the continuation alone is longer than the context that the model has, or empty.
  LikelihoodRequest pair(std::string context, std::string continuation) const;
  /// A whole text in disjoint pieces of at most max_length tokens, each after the token before it.
  std::vector<LikelihoodRequest> rolling(std::string_view text) const;

 private:
  int32_t prefix() const;

  const Tokenizer& tokenizer_;
  std::optional<int32_t> prefix_id_;
  std::string prefix_text_;
  int64_t max_length_;
};

/// Scores all requests, the longest first and those of equal length side by side. Where the requests of an item have a
/// long common beginning (a prompt), that is processed once, into a cache, if the method is causal.
/// `progress(done, total)` may end it by returning false; the result is then empty. Throws Error on a likelihood that
/// is not finite.
std::vector<Likelihood> score_requests(const CausalLM& model, AttentionMethod& method,
                                       const std::vector<LikelihoodRequest>& requests,
                                       const std::function<bool(int64_t, int64_t)>& progress = {});

}  // namespace focus
