#include "bench/train_bench.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "attention/methods/focus_attention.h"
#include "attention/methods/full.h"
#include "base/error.h"
#include "base/log.h"
#include "bench/bench_line.h"
#include "bench/gate.h"
#include "bench/timed_training.h"
#include "bench/timing.h"
#include "train/attention_schedule.h"
#include "train/lm_loss.h"
#include "train/lm_trainer.h"
#include "train/recording_attention.h"

namespace focus {

namespace {

using nlohmann::json;

// An update that changes no weight by more than float32 rounds to, for all but the smallest.
constexpr double kLearningRate = 1e-12;
// Relative difference of two losses that rounding explains, in float32 and under bfloat16 products.
constexpr double kLossTolerance = 1e-4, kHalfLossTolerance = 2e-2;

/// One method at one length.
class TrainRun {
 public:
  TrainRun(const std::string& name, const TrainBenchOptions& options, const CausalLM& model,
           const std::shared_ptr<const Router>& router, const TrainWindows::Window& window)
      : options_(options), model_(model), router_(name == "focus" ? router : nullptr), window_(window) {
    if (router_) {
      inner_ = std::make_unique<FocusAttention>(router_);
    } else {
      inner_ = std::make_unique<FullAttention>();
    }
    timed_ = std::make_unique<TimedTraining>(*inner_);
    schedule_ = std::make_unique<FixedAttention>(*timed_);
  }

  std::string name() const { return inner_->name(); }

  /// The op on the real inputs of one layer (that has lists, under Focus) against the reference.
  void check_op() {
    const at::NoGradGuard no_grad;
    const int64_t layers = model_.config().num_layers;
    int64_t chosen = layers / 2;
    while (router_ && !router_->has_layer(chosen)) chosen = (chosen + 1) % layers;
    RecordingAttention recording([&](const AttentionInput& input) {
      if (input.layer != chosen) return;
      BenchProblem problem{input.q.clone(), input.k.clone(), input.v.clone(), {}};
      problem.params.scale = input.scale;
      problem.params.softcap = input.softcap;
      problem.params.layer_window = input.layer_window;
      if (router_) {
        const at::Tensor positions = at::arange(input.q.size(2), at::kLong).unsqueeze(0);
        const Routes routes = router_->route(input.layer, input.hidden, positions);
        problem.params.window = router_->config().window;
        problem.params.key_group = routes.key_group;
        problem.params.probes = routes.probes;
      }
      const at::AutoGradMode with_grad(true);
      max_error_ = check_attention_run(
          name(), problem, [](const BenchProblem& p) { return std::get<0>(attention(p.q, p.k, p.v, p.params)); },
          /*backward=*/true);
    });
    model_.forward(at::tensor(window_.ids, at::kLong).unsqueeze(0), recording);
  }

  /// Warms up, and compares the step's loss with that of a pass without gradients.
  void check_step() {
    double expected = 0;
    {
      const at::NoGradGuard no_grad;
      const at::Tensor hidden = model_.forward(at::tensor(window_.ids, at::kLong).unsqueeze(0), *inner_);
      const at::Tensor states = hidden.flatten(0, 1), targets = next_tokens(window_);
      expected = lm_loss(model_, states, targets).nats;
    }
    StepResult first;
    peak_bytes_ = peak_extra_bytes([&] { first = one_step(); });
    const double error = std::abs(first.loss - expected) / expected;
    const double tolerance = options_.autocast ? kHalfLossTolerance : kLossTolerance;
    require(error <= tolerance,
            "bench: the loss of a training step of {} is {:.6f}, that of a pass without gradients {:.6f}; no speed is "
            "reported",
            name(), first.loss, expected);
    require(std::isfinite(first.grad_norm) && first.grad_norm > 0, "bench: {} gives no gradient", name());
    pairs_kept_ = first.pairs_kept;
  }

  void measure() {
    const double start = now_ms(BenchClock::kWall);
    one_step();
    const double ms = now_ms(BenchClock::kWall) - start;
    ms_.push_back(ms);
    forward_.push_back(timed_->forward_ms());
    backward_.push_back(timed_->backward_ms());
  }

  json report(const MachinePeaks& peaks) const {
    const int64_t length = std::ssize(window_.ids);
    const Timing step = summarize(ms_), forward = summarize(forward_), backward = summarize(backward_);
    const double gflops = 1e-6 * training_flops(model_, length, pairs_kept_) / step.median;
    json line = bench_line("train", name(), length, step, BenchClock::kWall, max_error_);
    line.update({{"tokens_per_s", 1e3 * static_cast<double>(length) / step.median},
                 {"pairs_kept", pairs_kept_},
                 {"gflops", gflops},
                 {"mfu", gflops / peaks.fma_gflops},
                 {"attention_share", (forward.median + backward.median) / step.median},
                 {"attention_forward_ms", forward.median},
                 {"attention_backward_ms", backward.median},
                 {"peak_extra_bytes", peak_bytes_},
                 {"activation_checkpointing", options_.activation_checkpointing}});
    return line;
  }

 private:
  /// A whole update, its optimizer's state included, which goes with the trainer.
  StepResult one_step() {
    if (!trainer_) {
      LmTrainingOptions options;
      options.steps = 1 << 30;
      options.learning_rate = kLearningRate;
      options.warmup_steps = 0;
      options.scheduler = LrScheduler::kConstant;
      options.activation_checkpointing = options_.activation_checkpointing;
      options.autocast = options_.autocast;
      trainer_ = std::make_unique<LmTrainer>(model_, *schedule_, model_.parameters(), options, [&] { return window_; });
    }
    return trainer_->train_step([](const std::string&) {});
  }

  const TrainBenchOptions& options_;
  const CausalLM& model_;
  std::shared_ptr<const Router> router_;
  TrainWindows::Window window_;
  std::unique_ptr<AttentionMethod> inner_;
  std::unique_ptr<TimedTraining> timed_;
  std::unique_ptr<FixedAttention> schedule_;
  std::unique_ptr<LmTrainer> trainer_;
  std::vector<double> ms_, forward_, backward_;
  double pairs_kept_ = 1, max_error_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace

double training_flops(const CausalLM& model, int64_t length, double pairs_kept) {
  const ModelConfig& config = model.config();
  double weights = static_cast<double>(config.vocab_size) * static_cast<double>(config.hidden_size);
  for (const auto& [name, tensor] : model.parameters()) {
    const bool table = name.find("embed_tokens") != std::string::npos || name.find("wte") != std::string::npos ||
                       name.find("wpe") != std::string::npos || name.find("lm_head") != std::string::npos;
    if (tensor.dim() >= 2 && !table) weights += static_cast<double>(tensor.numel());
  }
  const auto tokens = static_cast<double>(length);
  const double pairs = pairs_kept * tokens * (tokens + 1) / 2;
  const auto width = static_cast<double>(config.num_layers * config.num_heads * config.head_dim);
  return 6 * weights * tokens + 12 * width * pairs;
}

std::vector<json> run_train_bench(const TrainBenchOptions& options, const CausalLM& model,
                                  const std::shared_ptr<const Router>& router, const std::vector<int32_t>& text,
                                  const MachinePeaks& peaks, const std::function<bool()>& keep_going) {
  std::vector<json> lines;
  for (const int64_t length : options.lengths) {
    log_info("train, {} tokens: checking and timing", length);
    const TrainWindows::Window window{.ids = {text.begin(), text.begin() + length},
                                      .document_start = std::vector<int32_t>(static_cast<size_t>(length), 0)};
    std::vector<std::unique_ptr<TrainRun>> runs;
    for (const std::string& method : options.methods) {
      runs.push_back(std::make_unique<TrainRun>(method, options, model, router, window));
      runs.back()->check_op();
    }
    for (const auto& run : runs) {
      run->check_step();
      if (!keep_going()) return lines;
    }
    for (int64_t round = 0; round < options.repeats; ++round) {
      for (const auto& run : runs) {
        run->measure();
        if (!keep_going()) return lines;
      }
    }
    const size_t first = lines.size();
    for (const auto& run : runs) lines.push_back(run->report(peaks));
    add_ratios(lines, first);
  }
  return lines;
}

}  // namespace focus
