#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "bench/attention_bench.h"
#include "bench/bench_line.h"
#include "bench/decode_bench.h"
#include "bench/gate.h"
#include "bench/model_bench.h"
#include "bench/random_lists.h"
#include "bench/timing.h"

namespace focus {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Timing, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(summarize({3.0, 1.0, 9.0}).median, 3.0);
  const Timing four = summarize({4.0, 1.0, 2.0, 9.0});
  EXPECT_EQ(four.median, 3.0);
  EXPECT_EQ(four.min, 1.0);
  EXPECT_EQ(four.max, 9.0);
}

TEST(Timing, RoundsAlternate) {
  std::string order;
  const auto times =
      time_alternating({[&] { order += 'a'; }, [&] { order += 'b'; }}, 3, 0.0, BenchClock::kWall, [] { return true; });
  EXPECT_EQ(order, "abababab");
  EXPECT_EQ(times.size(), 2U);
}

TEST(RandomLists, SharesHaveTheSkewAskedFor) {
  for (const double skew : {1.0, 1.5, 3.0, 10.0}) {
    const std::vector<double> shares = list_shares(64, skew);
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1.0, 1e-9);
    EXPECT_NEAR(shares.front() * 64, skew, 1e-6);
  }
  EXPECT_THROW(list_shares(8, 8.0), UsageError);
}

TEST(RandomLists, SizesProbesAndSinks) {
  const AttentionParams params = random_lists({.sets = 2,
                                               .length = 4000,
                                               .groups = 16,
                                               .groups_per_token = 4,
                                               .skew = 3.0,
                                               .choice = ProbeChoice::kProportional});
  const at::Tensor sizes = at::bincount((*params.key_group)[0][1], {}, 17);
  EXPECT_EQ(sizes[0].item<int64_t>(), 4);
  EXPECT_NEAR(sizes[1].item<double>(), 3.0 * 4000 / 16, 10);
  const at::Tensor probes = *params.probes;  // [1, 2, 4000, 5]
  EXPECT_EQ(probes.sizes(), at::IntArrayRef({1, 2, 4000, 5}));
  const at::Tensor sorted = std::get<0>(probes.sort(-1));
  EXPECT_TRUE((sorted.slice(3, 1) > sorted.slice(3, 0, 4)).all().item<bool>()) << "a list twice";
  // The largest list is probed far more often than the smallest.
  EXPECT_GT((probes == 1).sum().item<int64_t>(), 4 * (probes == 16).sum().item<int64_t>());
}

TEST(RandomLists, SymmetricKeepsThePairsThatShareAGroup) {
  const AttentionParams params =
      random_lists({.length = 300, .groups = 8, .groups_per_token = 2, .sinks = 0, .symmetric = true});
  // 28 patterns, of which a pattern meets 13; every token meets itself.
  EXPECT_EQ(params.probes->size(3), 14);
  EXPECT_TRUE((*params.probes == params.key_group->unsqueeze(-1)).any(-1).all().item<bool>());
}

BenchProblem small_problem() {
  BenchProblem problem{at::randn({1, 2, 200, 16}), at::randn({1, 1, 200, 16}), at::randn({1, 1, 200, 16}),
                       random_lists({.length = 200})};
  problem.params.scale = 0.25;
  problem.params.window = 9;
  return problem;
}

TEST(Gate, PassesWhatIsRight) {
  const auto op = [](const BenchProblem& p) { return std::get<0>(attention(p.q, p.k, p.v, p.params)); };
  EXPECT_LT(check_attention_run("op", small_problem(), op, true), 1e-5);
}

TEST(Gate, RefusesAWrongOutputAndAWrongGradient) {
  const auto window_off_by_one = [](const BenchProblem& p) {
    AttentionParams params = p.params;
    params.window += 1;
    return std::get<0>(attention(p.q, p.k, p.v, params));
  };
  EXPECT_THAT([&] { check_attention_run("broken", small_problem(), window_off_by_one, false); },
              ThrowsMessage<Error>(HasSubstr("broken computes a wrong output")));
  const auto gradient_of_half = [](const BenchProblem& p) {
    const at::Tensor v = 0.5 * p.v + 0.5 * p.v.detach();
    return std::get<0>(attention(p.q, p.k, v, p.params));
  };
  EXPECT_THAT([&] { check_attention_run("broken", small_problem(), gradient_of_half, true); },
              ThrowsMessage<Error>(HasSubstr("broken computes a wrong gradient of v")));
  const auto not_a_number = [](const BenchProblem& p) { return at::full_like(p.q, NAN); };
  EXPECT_THAT([&] { check_attention_run("broken", small_problem(), not_a_number, false); },
              ThrowsMessage<Error>(HasSubstr("wrong output")));
}

TEST(AttentionBench, LinesOfAllPasses) {
  AttentionBenchOptions options;
  options.lengths = {64, 130};
  options.heads = 2;
  options.kv_heads = 1;
  options.head_dim = 16;
  options.window = 8;
  options.methods = {"full", "focus", "window", "sdpa"};
  options.backward = true;
  options.routing = true;
  options.repeats = 1;
  const auto lines = run_attention_bench(options, {100.0, 10.0}, [] { return true; });
  ASSERT_EQ(lines.size(), 2U * 4U * 3U);
  for (const auto& line : lines) {
    EXPECT_GT(line["ms_median"].get<double>(), 0.0);
    EXPECT_GT(line["gflops"].get<double>(), 0.0);
    EXPECT_LE(line["pairs_kept"].get<double>(), 1.0);
    EXPECT_EQ(line["ratio_to"].size(), 3U);
    EXPECT_TRUE(line.contains("share_of_ideal"));
    EXPECT_EQ(line["method"] == "focus" && line["pass"] == "forward", line.contains("routing_share"));
  }
}

TEST(AttentionBench, SamplesDenseAttentionBeyondTheLimit) {
  AttentionBenchOptions options;
  options.lengths = {6000};
  options.dense_limit = 4096;
  options.head_dim = 8;
  options.methods = {"full", "sdpa"};
  options.repeats = 1;
  const auto lines = run_attention_bench(options, {100.0, 10.0}, [] { return true; });
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0]["extrapolated"].get<bool>());
  EXPECT_GT(lines[1]["max_error"].get<double>(), 0);
  options.backward = true;
  EXPECT_THROW(run_attention_bench(options, {100.0, 10.0}, [] { return true; }), UsageError);
}

TEST(DecodeBench, ReadsMoreThanTheCachesOfTheMachineBetweenTwoUses) {
  AttentionBenchOptions options;
  options.lengths = {4000};
  options.groups = 2;  // Half of the keys: fewer copies.
  options.window = 16;
  options.repeats = 1;
  const auto lines = run_decode_bench(options, {100.0, 10.0}, [] { return true; });
  ASSERT_EQ(lines.size(), 3U);
  for (const auto& line : lines) {
    EXPECT_EQ(line["caches"], lines[1]["caches"]);
    const bool bounded = line["caches"].get<double>() * 4000 * 64 * 8 > 1e9;
    EXPECT_TRUE(bounded || line["reuse_bytes"].get<double>() >= 2 * line["llc_bytes"].get<double>());
    EXPECT_EQ(line["ratio_to"].size(), 2U);
  }
  EXPECT_LT(lines[1]["pairs_kept"].get<double>(), 0.7);
  EXPECT_GT(lines[0]["caches"].get<int64_t>(), 1);
}

TEST(BenchLine, RatiosAreWithinALengthAndPass) {
  std::vector<nlohmann::json> lines;
  for (const char* method : {"full", "focus"}) {
    for (const char* pass : {"forward", "backward"}) {
      const double ms = std::string(method) == "full" ? 6 : std::string(pass) == "forward" ? 2 : 3;
      lines.push_back(bench_line("attention", method, 64, {ms, ms, ms}, BenchClock::kWall, 0));
      lines.back()["pass"] = pass;
    }
  }
  add_ratios(lines, 0);
  EXPECT_EQ(lines[2]["ratio_to"], nlohmann::json({{"full", 3.0}}));
  EXPECT_EQ(ratio_text(lines[3]), "full 2.00");
}

/// Gives the same logits for everything.
class ConstantRunner : public ModelRunner {
 public:
  ConstantRunner(std::string name, bool recomputes) : name_(std::move(name)), recomputes_(recomputes) {}
  std::string name() const override { return name_; }
  StretchResult prefill(const std::vector<int32_t>&) override { return {1.0, 0.5, at::ones({4})}; }
  StretchResult decode(const std::vector<int32_t>&) override { return {1.0, 0.5, at::ones({4})}; }
  at::Tensor recompute(const std::vector<int32_t>&) override { return recomputes_ ? at::ones({4}) : at::Tensor(); }
  PairCount pairs() const override { return {1, 1}; }

 private:
  std::string name_;
  bool recomputes_;
};

std::vector<nlohmann::json> bench_constant(const ModelBenchOptions& options, const std::vector<std::string>& names) {
  std::vector<std::unique_ptr<ModelRunner>> runners;
  for (const std::string& name : names) runners.push_back(std::make_unique<ConstantRunner>(name, name == "full"));
  return run_model_bench(options, runners, std::vector<int32_t>(100, 7), [] { return true; });
}

TEST(ModelBench, PrefillNeedsNoMoreTextThanItsLength) {
  ModelBenchOptions options{.lengths = {100}};
  options.new_tokens = int64_t{1} << 50;  // That many could not be copied.
  EXPECT_EQ(bench_constant(options, {"full"}).at(0)["length"], 100);
  options.decode = true;
  options.new_tokens = 1;
  EXPECT_THAT([&] { bench_constant(options, {"full"}); }, ThrowsMessage<Error>(HasSubstr("expected at least 101")));
}

TEST(ModelBench, GivesNoSpeedOfWhatWasComparedWithNothing) {
  const ModelBenchOptions options{.lengths = {50}};
  EXPECT_EQ(bench_constant(options, {"full", "transformers"}).at(1)["max_error"], 0);
  EXPECT_THAT([&] { bench_constant(options, {"transformers"}); },
              ThrowsMessage<Error>(HasSubstr("transformers were compared with nothing")));
}

}  // namespace
}  // namespace focus
