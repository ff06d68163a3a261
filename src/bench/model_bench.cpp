#include "bench/model_bench.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "bench/bench_line.h"
#include "bench/timing.h"

namespace focus {

namespace {

using nlohmann::json;

struct Samples {
  std::vector<double> ms;           // of a prefill, or of one token
  std::vector<double> attention;    // as a share
  std::optional<double> max_error;  // of the logits; nothing before they were compared
};

/// The largest difference over the largest logit of the reference; infinite where only one side is finite.
double difference(const at::Tensor& a, const at::Tensor& b) {
  require(a.sizes() == b.sizes(), "bench: {} logits are compared with {}", a.numel(), b.numel());
  if (!a.isfinite().all().item<bool>() || !b.isfinite().all().item<bool>()) {
    return std::numeric_limits<double>::infinity();
  }
  return (a - b).abs().max().item<double>() / std::max(1.0, b.abs().max().item<double>());
}

double checked(const at::Tensor& logits, const at::Tensor& reference, double tolerance, const std::string& who,
               const std::string& against) {
  const double error = difference(logits, reference);
  require(error <= tolerance,
          "bench: the logits of {} differ from {} by {:.2g}, rounding explains {:.2g}; no speed is "
          "reported",
          who, against, error, tolerance);
  return error;
}

class LengthBench {
 public:
  LengthBench(const ModelBenchOptions& options, const std::vector<std::unique_ptr<ModelRunner>>& runners,
              const std::vector<int32_t>& text, int64_t length)
      : options_(options),
        runners_(runners),
        length_(length),
        prompt_(text.begin(), text.begin() + length),
        samples_(runners.size()) {
    if (options.decode) next_.assign(text.begin() + length, text.begin() + length + options.new_tokens);
  }

  /// Warms up and compares logits, at the end of what is timed.
  void check() {
    std::vector<int32_t> all = prompt_;
    if (options_.decode) all.insert(all.end(), next_.begin(), next_.end());
    std::map<std::string, at::Tensor> logits;
    for (size_t r = 0; r < runners_.size(); ++r) {
      ModelRunner& runner = *runners_[r];
      StretchResult result = runner.prefill(prompt_);
      if (options_.decode) result = runner.decode(next_);
      pairs_.push_back(runner.pairs());
      logits[runner.name()] = result.logits;
      const at::Tensor again = runner.recompute(all);
      if (again.defined()) {
        samples_[r].max_error = checked(result.logits, again, options_.tolerance, runner.name(), "one pass");
      }
    }
    if (logits.contains("full") && logits.contains("transformers")) {
      const double error =
          checked(logits["full"], logits["transformers"], options_.tolerance, "full", "those of transformers");
      for (size_t r = 0; r < runners_.size(); ++r) {
        std::optional<double>& largest = samples_[r].max_error;
        const bool compared = runners_[r]->name() == "full" || runners_[r]->name() == "transformers";
        if (compared) largest = std::max(largest.value_or(0), error);
      }
    }
    for (size_t r = 0; r < runners_.size(); ++r) {
      require(samples_[r].max_error.has_value(),
              "bench: the logits of {} were compared with nothing; no speed is reported", runners_[r]->name());
    }
  }

  bool measure(const std::function<bool()>& keep_going) {
    for (int64_t round = 0; round < options_.repeats; ++round) {
      for (size_t r = 0; r < runners_.size(); ++r) {
        const StretchResult result = options_.decode ? runners_[r]->decode(next_) : runners_[r]->prefill(prompt_);
        samples_[r].ms.push_back(result.ms / (options_.decode ? static_cast<double>(options_.new_tokens) : 1.0));
        samples_[r].attention.push_back(result.attention_ms / result.ms);
      }
      if (!keep_going()) return false;
    }
    return true;
  }

  void report(std::vector<json>& lines) const {
    const size_t first = lines.size();
    for (size_t r = 0; r < runners_.size(); ++r) {
      const double tokens = options_.decode ? 1.0 : static_cast<double>(length_);
      const Timing time = summarize(samples_[r].ms);
      json line = bench_line(options_.decode ? "decode" : "prefill", runners_[r]->name(), length_, time,
                             BenchClock::kWall, *samples_[r].max_error);
      line["tokens_per_s"] = 1e3 * tokens / time.median;
      if (options_.decode) line["new_tokens"] = options_.new_tokens;
      if (runners_[r]->name() != "transformers") {
        line["pairs_kept"] = static_cast<double>(pairs_[r].kept) / static_cast<double>(pairs_[r].causal);
        line["attention_share"] = summarize(samples_[r].attention).median;
        line["cache_bytes"] = runners_[r]->cache_bytes();
      }
      lines.push_back(std::move(line));
    }
    add_ratios(lines, first);
  }

 private:
  const ModelBenchOptions& options_;
  const std::vector<std::unique_ptr<ModelRunner>>& runners_;
  int64_t length_;
  std::vector<int32_t> prompt_, next_;
  std::vector<Samples> samples_;
  std::vector<PairCount> pairs_;
};

}  // namespace

std::vector<json> run_model_bench(const ModelBenchOptions& options,
                                  const std::vector<std::unique_ptr<ModelRunner>>& runners,
                                  const std::vector<int32_t>& text, const std::function<bool()>& keep_going) {
  std::vector<json> lines;
  for (const int64_t length : options.lengths) {
    const int64_t needed = length + (options.decode ? options.new_tokens : 0);
    require(std::ssize(text) >= needed, "bench: a text of {} tokens, expected at least {}", text.size(), needed);
    log_info("{}, {} tokens: checking and timing", options.decode ? "decode" : "prefill", length);
    LengthBench bench(options, runners, text, length);
    bench.check();
    if (!bench.measure(keep_going)) break;
    bench.report(lines);
  }
  return lines;
}

}  // namespace focus
