#include "eval/tasks/requests.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/python_text.h"
#include "eval/scoring.h"

namespace focus {

namespace {

/// Tokens of one forward pass, unless a request alone has more.
constexpr int64_t kBatchTokens = 2048;
/// A common beginning of fewer tokens is not worth a cache.
constexpr int64_t kSharedTokens = 128;

}  // namespace

RequestEncoder::RequestEncoder(const Tokenizer& tokenizer, std::optional<int32_t> prefix_id, int64_t max_length)
    : tokenizer_(tokenizer), prefix_id_(prefix_id), max_length_(max_length) {
  if (prefix_id) prefix_text_ = tokenizer.token_of(*prefix_id);
}

int32_t RequestEncoder::prefix() const {
  require(prefix_id_.has_value(),
          "the tokenizer names no token for the beginning or end of a text (bos_token, eos_token in "
          "tokenizer_config.json), which must stand before a text without context");
  return *prefix_id_;
}

std::vector<int32_t> RequestEncoder::encode(std::string_view text) const {
  return tokenizer_.encode(text, prefix_text_.empty() || !text.starts_with(prefix_text_));
}

LikelihoodRequest RequestEncoder::pair(std::string context, std::string continuation) const {
  LikelihoodRequest request;
  if (context.empty()) {
    request.ids = tokenizer_.encode(continuation, false);
    require(!request.ids.empty(), "a continuation without tokens");
    if (request.ids.front() != prefix()) request.ids.insert(request.ids.begin(), prefix());
    request.scored = std::ssize(request.ids) - 1;
  } else {
    const size_t end = strip_right(context).size();
    continuation.insert(0, context, end);
    context.resize(end);
    request.ids = encode(context + continuation);
    request.scored = std::ssize(request.ids) - std::ssize(encode(context));
  }
  require(request.scored > 0, "the continuation \"{}\" adds no token", continuation);
  require(request.scored <= max_length_, "a continuation of {} tokens, but the model's context is {}", request.scored,
          max_length_);
  require(request.scored < std::ssize(request.ids), "the context has no token before \"{}\"", continuation);
  const int64_t excess = std::ssize(request.ids) - (max_length_ + 1);
  if (excess > 0) {
    request.ids.erase(request.ids.begin(), request.ids.begin() + excess);
    request.truncated = true;
  }
  return request;
}

std::vector<LikelihoodRequest> RequestEncoder::rolling(std::string_view text) const {
  const std::vector<int32_t> ids = encode(text);
  std::vector<LikelihoodRequest> requests;
  for (int64_t begin = 0; begin < std::ssize(ids);) {
    const int64_t end = std::min(begin + max_length_, std::ssize(ids));
    LikelihoodRequest request;
    // A later piece has as many tokens before it as fit: the last one, being shorter, sees some of the piece before.
    if (begin == 0) request.ids.push_back(prefix());
    request.ids.insert(request.ids.end(), ids.begin() + std::max<int64_t>(end - max_length_ - 1, 0), ids.begin() + end);
    request.scored = end - begin;
    requests.push_back(std::move(request));
    begin = end;
  }
  return requests;
}

namespace {

/// Requests that are scored together: rows of one length, or continuations of one beginning of `shared` tokens.
struct Unit {
  std::vector<size_t> rows;
  int64_t shared = 0;
  int64_t tokens = 0;  // Of the longest row.
};

int64_t common_beginning(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

/// The unit of the requests of the same item from `first` on, with a shared beginning if it is long enough. Rows keep a
/// token more than they score beyond it.
Unit item_unit(const std::vector<LikelihoodRequest>& requests, size_t first) {
  Unit unit;
  unit.shared = std::ssize(requests[first].ids);
  for (size_t i = first; i < requests.size() && (i == first || requests[i].item == requests[first].item); ++i) {
    if (i > first && requests[first].item < 0) break;
    const int64_t length = std::ssize(requests[i].ids);
    unit.shared = std::min(
        {unit.shared, common_beginning(requests[first].ids, requests[i].ids), length - 1 - requests[i].scored});
    unit.tokens = std::max(unit.tokens, length);
    unit.rows.push_back(i);
  }
  return unit;
}

/// All requests in units, the longest first.
std::vector<Unit> plan(const std::vector<LikelihoodRequest>& requests, bool may_share) {
  std::vector<Unit> units;
  std::vector<size_t> single;
  for (size_t i = 0; i < requests.size();) {
    Unit unit = item_unit(requests, i);
    i += unit.rows.size();
    if (may_share && unit.rows.size() > 1 && unit.shared >= kSharedTokens) {
      units.push_back(std::move(unit));
    } else {
      single.insert(single.end(), unit.rows.begin(), unit.rows.end());
    }
  }
  const auto tokens = [&](size_t i) { return std::ssize(requests[i].ids); };
  std::stable_sort(single.begin(), single.end(), [&](size_t a, size_t b) { return tokens(a) > tokens(b); });
  for (size_t begin = 0; begin < single.size();) {
    const int64_t length = tokens(single[begin]);
    Unit unit{{}, 0, length};
    while (begin < single.size() && tokens(single[begin]) == length &&
           (unit.rows.empty() || (std::ssize(unit.rows) + 1) * length <= kBatchTokens)) {
      unit.rows.push_back(single[begin++]);
    }
    units.push_back(std::move(unit));
  }
  std::stable_sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a.tokens > b.tokens; });
  return units;
}

class Scorer {
 public:
  Scorer(const CausalLM& model, AttentionMethod& method, const std::vector<LikelihoodRequest>& requests)
      : model_(model),
        method_(method),
        requests_(requests),
        results_(requests.size()),
        device_(model.parameters().front().second.device()) {}

  void score(const Unit& unit) {
    if (unit.shared > 0) {
      score_shared(unit);
    } else {
      score_rows(unit);
    }
  }
  std::vector<Likelihood> take() { return std::move(results_); }

 private:
  /// int64 [1, n] of some tokens of a request.
  at::Tensor ids(size_t row, int64_t begin, int64_t end) const {
    const auto& all = requests_[row].ids;
    return at::tensor(std::vector<int64_t>(all.begin() + begin, all.begin() + end), at::kLong).unsqueeze(0).to(device_);
  }

  void score_shared(const Unit& unit) {
    ModelCache cache = model_.make_cache(method_, 1, unit.tokens);
    ForwardOptions options;
    options.cache = &cache;
    model_.forward(ids(unit.rows[0], 0, unit.shared), method_, options);
    for (const size_t row : unit.rows) {
      const int64_t length = std::ssize(requests_[row].ids) - 1;  // The last token is only predicted.
      const at::Tensor hidden = model_.forward(ids(row, unit.shared, length), method_, options).squeeze(0);
      keep({row}, hidden.narrow(0, hidden.size(0) - requests_[row].scored, requests_[row].scored));
      for (const auto& layer : cache) layer->truncate(unit.shared);
    }
  }

  void score_rows(const Unit& unit) {
    std::vector<at::Tensor> inputs, states;
    for (const size_t row : unit.rows) inputs.push_back(ids(row, 0, unit.tokens - 1));
    const at::Tensor hidden = model_.forward(at::cat(inputs), method_);  // [rows, tokens - 1, d]
    for (int64_t i = 0; i < std::ssize(unit.rows); ++i) {
      const int64_t scored = requests_[unit.rows[static_cast<size_t>(i)]].scored;
      states.push_back(hidden[i].narrow(0, unit.tokens - 1 - scored, scored));
    }
    keep(unit.rows, at::cat(states));
  }

  /// Scores rows by the states [sum of scored, d] that predict their scored tokens.
  void keep(const std::vector<size_t>& rows, const at::Tensor& states) {
    std::vector<at::Tensor> targets;
    for (const size_t row : rows) {
      const int64_t length = std::ssize(requests_[row].ids);
      targets.push_back(ids(row, length - requests_[row].scored, length).squeeze(0));
    }
    const TokenScores scores = score_tokens(model_, states, at::cat(targets));
    const at::Tensor nll = scores.nll.to(at::kDouble).cpu(), likely = scores.likely.cpu();
    int64_t offset = 0;
    for (const size_t row : rows) {
      const int64_t scored = requests_[row].scored;
      Likelihood& result = results_[row];
      result.log_likelihood = -nll.narrow(0, offset, scored).sum().item<double>();
      result.greedy = likely.narrow(0, offset, scored).all().item<bool>();
      require(std::isfinite(result.log_likelihood),
              "the likelihood of a text is not finite: the model or adapter gives NaN or Inf");
      offset += scored;
    }
  }

  const CausalLM& model_;
  AttentionMethod& method_;
  const std::vector<LikelihoodRequest>& requests_;
  std::vector<Likelihood> results_;
  at::Device device_;
};

}  // namespace

std::vector<Likelihood> score_requests(const CausalLM& model, AttentionMethod& method,
                                       const std::vector<LikelihoodRequest>& requests,
                                       const std::function<bool(int64_t, int64_t)>& progress) {
  const at::NoGradGuard no_grad;
  Scorer scorer(model, method, requests);
  int64_t done = 0;
  for (const Unit& unit : plan(requests, method.is_causal())) {
    scorer.score(unit);
    done += std::ssize(unit.rows);
    if (progress && !progress(done, std::ssize(requests))) return {};
  }
  return scorer.take();
}

}  // namespace focus
