#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>

#include "attention/op.h"
#include "base/error.h"
#include "eval/copy_task.h"
#include "eval/leak_probe.h"
#include "eval/perplexity.h"
#include "eval/scoring.h"
#include "eval/statistics.h"
#include "eval/tasks/requests.h"

namespace focus {
namespace {

/// One attention block of width 16 over random embeddings.
class ToyModel : public CausalLM {
 public:
  explicit ToyModel(at::ScalarType dtype = at::kFloat) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
    config_.vocab_size = 40;
    config_.hidden_size = 16;
    config_.num_layers = 1;
    config_.max_positions = 512;
    embedding_ = at::randn({40, 16}, generator).to(dtype);
    parameters_ = {{"embedding", embedding_}};
  }
  const ModelConfig& config() const override { return config_; }
  at::Tensor embed(const at::Tensor& ids, const at::Tensor&) const override { return at::embedding(embedding_, ids); }
  at::Tensor block(int64_t layer, const at::Tensor& x, const at::Tensor&, AttentionMethod& method,
                   const ForwardOptions&) const override {
    const at::Tensor heads = x.view({x.size(0), x.size(1), 2, 8}).transpose(1, 2);
    AttentionInput input;
    input.layer = layer;
    input.hidden = x;
    input.q = input.k = input.v = heads;
    input.scale = 0.5;
    return x + method.attend(input).transpose(1, 2).reshape(x.sizes());
  }
  at::Tensor final_norm(const at::Tensor& x) const override { return x; }
  at::Tensor logits(const at::Tensor& hidden) const override { return at::matmul(hidden, embedding_.t()); }
  const std::vector<std::pair<std::string, at::Tensor>>& parameters() const override { return parameters_; }
  std::string attention_module() const override { return "layers.{}"; }

 private:
  ModelConfig config_;
  at::Tensor embedding_;
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
};

/// Dense attention; with a leak, the values are centred over the whole sequence first, as a batch normaliser would.
class ToyAttention : public AttentionMethod {
 public:
  explicit ToyAttention(double leak) : leak_(leak) {}
  std::string name() const override { return "toy"; }
  at::Tensor attend(const AttentionInput& input) override {
    const at::Tensor v = input.v - leak_ * input.v.mean(2, /*keepdim=*/true);
    AttentionParams dense;
    dense.scale = input.scale;
    return std::get<0>(reference_attention(input.q, input.k, v, dense));
  }
  std::unique_ptr<LayerCache> make_cache(int64_t, int64_t, int64_t) const override { return nullptr; }
  PairCount pairs() const override { return {.kept = 1, .causal = 2}; }
  void reset_pairs() override {}

 private:
  double leak_;
};

std::vector<int32_t> text(int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>((i * i * 7 + i * 3) % 40));
  return ids;
}

TEST(LeakProbe, PassesACausalModel) {
  const ToyModel model;
  ToyAttention method(0);
  const LeakProbeResult result = probe_leak(model, method, text(300));
  EXPECT_FALSE(result.leaks());
  EXPECT_LE(result.max_abs_diff, 1e-5);
  EXPECT_GT(result.logits_compared, 1000);
}

TEST(LeakProbe, CatchesANormaliserOverTheSequence) {
  const ToyModel model;
  ToyAttention method(0.01);
  const LeakProbeResult result = probe_leak(model, method, text(300));
  EXPECT_TRUE(result.leaks());
  EXPECT_GT(result.max_abs_diff, result.tolerance);
}

TEST(LeakProbe, TellsRoundingFromALeakIn16Bits) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const ToyModel model(dtype);
    ToyAttention causal(0), leaking(0.2);
    EXPECT_FALSE(probe_leak(model, causal, text(300)).leaks());
    const LeakProbeResult result = probe_leak(model, leaking, text(300));
    EXPECT_GT(result.max_abs_diff, 2 * result.tolerance) << dtype;
    EXPECT_TRUE(result.leaks());
  }
}

TEST(LeakProbe, WorksOnTwoTokensAndRefusesOne) {
  const ToyModel model;
  ToyAttention method(0);
  EXPECT_FALSE(probe_leak(model, method, text(2)).leaks());
  EXPECT_THROW(probe_leak(model, method, text(1)), Error);
}

TEST(Perplexity, IsThatOfTheLogits) {
  const ToyModel model;
  ToyAttention method(0);
  const std::vector<Document> documents = {text(50)};
  const PerplexityResult result = evaluate_perplexity(model, method, documents, eval_windows(documents, 20, 20));
  double sum = 0;
  for (const int64_t begin : {0, 20, 40}) {
    const int64_t length = std::min<int64_t>(20, 50 - begin);
    const std::vector<int64_t> ids(documents[0].begin() + begin, documents[0].begin() + begin + length);
    const at::Tensor input = at::tensor(ids, at::kLong).unsqueeze(0);
    const at::Tensor log_probs = model.logits(model.forward(input, method)).log_softmax(-1);
    for (int64_t t = 0; t + 1 < length; ++t) sum -= log_probs[0][t][ids[t + 1]].item<double>();
  }
  EXPECT_EQ(result.tokens_scored, 19 + 19 + 9);
  EXPECT_NEAR(result.nll, sum / 47, 1e-5);
  EXPECT_NEAR(std::log(result.perplexity), sum / 47, 1e-5);
}

TEST(Perplexity, ItsErrorWeighsWindowsByTheirTokens) {
  const ToyModel model;
  ToyAttention method(0);
  const std::vector<Document> documents = {text(45)};
  const auto windows = eval_windows(documents, 20, 20);
  const PerplexityResult result = evaluate_perplexity(model, method, documents, windows);
  ASSERT_EQ(result.windows, 3);
  std::vector<double> sums, counts;
  for (size_t w = 0; w < windows.size(); ++w) {
    counts.push_back(static_cast<double>(windows[w].scored));
    sums.push_back(result.window_nll[w] * counts.back());
  }
  EXPECT_NE(counts[0], counts[2]);
  EXPECT_NEAR(result.nll_stderr, ratio_error(sums, counts).error, 1e-9);
  const auto one = [](int64_t, int64_t) { return false; };
  EXPECT_TRUE(std::isnan(evaluate_perplexity(model, method, documents, windows, one).nll_stderr));
  EXPECT_TRUE(std::isnan(evaluate_copy(model, method, text(80), {.items = 1, .passage = 10, .filler = 20}).nll_stderr));
}

TEST(Perplexity, ByPositionAddsUpToTheWhole) {
  const ToyModel model;
  ToyAttention method(0);
  const std::vector<Document> documents = {text(700)};
  const PerplexityResult result = evaluate_perplexity(model, method, documents, eval_windows(documents, 300, 200));
  ASSERT_EQ(result.by_position.size(), 3);
  double sum = 0;
  int64_t tokens = 0, begin = 0;
  for (const PositionLoss& part : result.by_position) {
    EXPECT_EQ(part.begin, begin);
    begin = part.end;
    sum += part.nll * static_cast<double>(part.tokens);
    tokens += part.tokens;
  }
  EXPECT_EQ(begin, 512);
  EXPECT_EQ(result.by_position[0].tokens, 127 + 28 + 28);  // Windows at 0, 200, 400, which score from 1, 100, 100 on.
  EXPECT_EQ(tokens, result.tokens_scored);
  EXPECT_NEAR(sum / static_cast<double>(tokens), result.nll, 1e-9);
}

TEST(Perplexity, StopsWhenAskedTo) {
  const ToyModel model;
  ToyAttention method(0);
  const std::vector<Document> documents = {text(100)};
  const auto windows = eval_windows(documents, 10, 10);
  const PerplexityResult result =
      evaluate_perplexity(model, method, documents, windows, [](int64_t done, int64_t) { return done < 3; });
  EXPECT_EQ(result.windows, 3);
}

TEST(CopyTask, ScoresTheRepeatOnly) {
  const ToyModel model;
  ToyAttention method(0);
  const std::vector<int32_t> ids = text(80);
  const CopyTaskResult result = evaluate_copy(model, method, ids, {.items = 3, .passage = 10, .filler = 20});
  EXPECT_EQ(result.items, 3);
  EXPECT_EQ(result.pairs.kept, 1);
  // The middle item starts half way: (80 - 30) / 2.
  std::vector<int64_t> input(ids.begin() + 25, ids.begin() + 55);
  input.insert(input.end(), ids.begin() + 25, ids.begin() + 35);
  const at::Tensor tokens = at::tensor(input, at::kLong).unsqueeze(0);
  const at::Tensor log_probs = model.logits(model.forward(tokens, method)).log_softmax(-1);
  double sum = 0;
  for (int64_t t = 30; t < 39; ++t) sum -= log_probs[0][t][input[t + 1]].item<double>();
  EXPECT_NEAR(result.item_nll[1], sum / 9, 1e-5);
  EXPECT_THROW(evaluate_copy(model, method, text(29), {.items = 1, .passage = 10, .filler = 20}), Error);
}

TEST(TokenNll, IsTheSameInOneBlockOrMany) {
  const ToyModel model;
  const at::Tensor hidden = at::randn({600, 16});
  const at::Tensor targets = at::arange(600) % 40;
  const at::Tensor expected = -model.logits(hidden).log_softmax(-1).gather(1, targets.unsqueeze(1)).squeeze(1);
  EXPECT_LT((token_nll(model, hidden, targets) - expected).abs().max().item<double>(), 1e-4);
  EXPECT_THROW(token_nll(model, hidden, targets.narrow(0, 0, 5)), Error);
}

TEST(TokenScores, KnowWhatGreedyDecodingWouldChoose) {
  const ToyModel model;
  const at::Tensor hidden = at::randn({300, 16});
  at::Tensor targets = model.logits(hidden).argmax(1);
  EXPECT_TRUE(score_tokens(model, hidden, targets).likely.all().item<bool>());
  targets[270] = (targets[270] + 1) % 40;
  const TokenScores scores = score_tokens(model, hidden, targets);
  EXPECT_EQ(scores.likely.sum().item<int64_t>(), 299);
  EXPECT_FALSE(scores.likely[270].item<bool>());
  EXPECT_TRUE(at::equal(scores.nll, token_nll(model, hidden, targets)));
}

TEST(ScoreRequests, AreThoseOfTheLogitsInAnyOrderOfLengths) {
  const ToyModel model;
  ToyAttention method(0);
  const std::vector<int32_t> ids = text(30);
  std::vector<LikelihoodRequest> requests;
  for (const int64_t length : {12, 30, 12, 2, 12}) {
    LikelihoodRequest request;
    request.ids.assign(ids.end() - length, ids.end());
    request.scored = 1 + std::ssize(requests) % length;
    if (length == 2) request.scored = 1;
    requests.push_back(request);
  }
  const std::vector<Likelihood> scores = score_requests(model, method, requests);
  ASSERT_EQ(scores.size(), requests.size());
  for (size_t r = 0; r < requests.size(); ++r) {
    const std::vector<int64_t> own(requests[r].ids.begin(), requests[r].ids.end());
    const at::Tensor input = at::tensor(own, at::kLong).unsqueeze(0);
    const at::Tensor log_probs = model.logits(model.forward(input, method)).log_softmax(-1)[0];
    double sum = 0;
    bool greedy = true;
    for (int64_t t = std::ssize(own) - requests[r].scored; t < std::ssize(own); ++t) {
      const int64_t target = own[static_cast<size_t>(t)];
      sum += log_probs[t - 1][target].item<double>();
      greedy = greedy && log_probs[t - 1].argmax().item<int64_t>() == target;
    }
    EXPECT_NEAR(scores[r].log_likelihood, sum, 1e-5);
    EXPECT_EQ(scores[r].greedy, greedy);
  }
  EXPECT_TRUE(score_requests(model, method, requests, [](int64_t, int64_t) { return false; }).empty());
}

TEST(Statistics, MeansAndRatiosWithTheirErrors) {
  const std::vector<double> values = {1, 2, 6};
  EXPECT_DOUBLE_EQ(mean_error(values).mean, 3);
  EXPECT_NEAR(mean_error(values).error, std::sqrt(7.0 / 3), 1e-12);
  EXPECT_TRUE(std::isnan(mean_error(std::vector<double>{1}).error));
  const std::vector<double> ones = {1, 1, 1}, twice = {2, 4, 12};
  EXPECT_NEAR(ratio_error(values, ones).error, mean_error(values).error, 1e-12);
  EXPECT_DOUBLE_EQ(ratio_error(twice, values).mean, 2);
  EXPECT_NEAR(ratio_error(twice, values).error, 0, 1e-12);
  EXPECT_EQ(error_text(0.01234), " +- 0.0123");
  EXPECT_EQ(error_text(mean_error(std::vector<double>{1}).error), "");
}

}  // namespace
}  // namespace focus
