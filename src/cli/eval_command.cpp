#include "cli/eval_command.h"

#include <algorithm>
#include <numeric>

#include "attention/methods/list_attention.h"
#include "attention/methods/registry.h"
#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/eval_tasks.h"
#include "cli/output.h"
#include "cli/session.h"
#include "eval/leak_probe.h"
#include "eval/perplexity.h"
#include "eval/statistics.h"
#include "train/soft_gate_attention.h"

namespace focus {

namespace {

constexpr int64_t kDefaultContext = 2048;

class EvalCommand : public Command {
 public:
  void declare(OptionTable& table) override {
    common_.declare(
        table, kModelFlags | kRopeFlag | kAdapterFlag | kLoraFlag | kDataFlags | kOptionalData | kOutFlag | kSeedFlag);
    table.section("Evaluation");
    table.add("context", &context_, "tokens a window")
        .at_least(2)
        .default_text("2048, or the model's context if that is shorter");
    table.add("stride", &stride_, "tokens from one window to the next").at_least(1).default_text("the context");
    table.add("max-windows", &max_windows_, "score the first N windows only, 0 for all").at_least(0);
    table.add("allow-leak", &allow_leak_, "report figures even if later tokens change earlier logits");
    table
        .add("soft-gate", &soft_gate_,
             "score an adapter of the paper's form under the gate that --objective lm-gate trained it with, of this "
             "lambda: "
             "every pair is weighted, none left out; with --normaliser sinkhorn it needs --allow-leak")
        .value_name("X")
        .above(0);
    tasks_.declare(table);
    attention_.declare(table, method_names(), "focus with --adapter, else full");
  }

  int run(const RunContext& run) override {
    attention_.resolve(run.options);
    attention_.choose_method(run.options, common_.adapter.has_value());
    const bool text = !common_.data.empty();
    if (!text && !tasks_.any()) fail_usage("eval needs --data, --tasks or both");
    for (const char* flag : {"context", "stride", "max-windows", "keep-line-wraps"}) {
      if (!text && run.options.changed(flag)) fail_usage("--{} belongs to --data", flag);
    }
    if (common_.out) prepare_output_folder(*common_.out, "--out");
    tasks_.prepare(run.options, common_);
    const Session session = open_session(common_, run.device);
    tasks_.open(session, common_);
    const std::unique_ptr<AttentionMethod> method =
        soft_gate_ ? open_soft_gate(session, run.options) : open_method(session, common_, attention_, run.options);
    const int64_t positions = session.model->config().max_positions;
    const int64_t context = context_.value_or(std::min(kDefaultContext, positions));
    if (context > positions) fail_usage("--context {}: the model's context is {}", context, positions);
    std::vector<Document> documents;
    if (text) documents = read_documents(session.tokenizer, common_);

    const InterruptGuard guard;
    nlohmann::json result = {{"method", method->name()}};
    if (text) {
      const int64_t stride = stride_.value_or(context);
      require_tokens(documents, 2, common_.data.string());
      std::vector<EvalWindow> windows = eval_windows(documents, context, stride);
      require(!windows.empty(), "{}: no document has 2 tokens or more: nothing to predict", common_.data.string());
      if (max_windows_ > 0 && std::ssize(windows) > max_windows_) windows.resize(max_windows_);
      result["context"] = context;
      result["stride"] = stride;
      probe(session, *method, documents, result);
      if (!perplexity(session, *method, documents, windows, result)) return interrupted_exit();
    } else {
      probe(session, *method, tasks_.probe_documents(session), result);
    }
    if (!tasks_.run(session, *method, documents, common_, result)) return interrupted_exit();
    report(result, run);
    return 0;
  }

 private:
  void probe(const Session& session, AttentionMethod& method, const std::vector<Document>& documents,
             nlohmann::json& result) const {
    const LeakProbeResult leak = probe_leak(*session.model, method, documents, static_cast<uint64_t>(common_.seed));
    result["leak_max_abs_diff"] = leak.max_abs_diff;
    result["leak_tolerance"] = leak.tolerance;
    // What a method says of itself counts too: a short probe may lie within a window that hides what it does.
    result["leaks"] = leak.leaks() || !method.is_causal();
    if (!result["leaks"].get<bool>()) return;
    const std::string what =
        leak.leaks() ? fmt::format(
                           "later tokens change earlier logits by up to {:.3g} (prefix of {} tokens; rounding allows "
                           "{:.1g})",
                           leak.max_abs_diff, leak.worst_prefix, leak.tolerance)
                     : std::string("it reads later tokens, though none changed an earlier logit in the probe");
    if (!allow_leak_) fail("method {}: {}; no figure is reported without --allow-leak", method.name(), what);
    log_warning("method {}: {}", method.name(), what);
  }

  bool perplexity(const Session& session, AttentionMethod& method, const std::vector<Document>& documents,
                  const std::vector<EvalWindow>& windows, nlohmann::json& result) const {
    method.reset_pairs();
    auto* lists = dynamic_cast<ListAttention*>(&method);
    if (lists != nullptr) lists->reset_dominance();
    Progress progress("perplexity", std::ssize(windows), "windows");
    const PerplexityResult scored =
        evaluate_perplexity(*session.model, method, documents, windows, [&](int64_t done, int64_t) {
          progress.set(done);
          return !interrupted();
        });
    result["perplexity"] = scored.perplexity;
    result["nll"] = scored.nll;
    result["nll_stderr"] = scored.nll_stderr;
    result["tokens_scored"] = scored.tokens_scored;
    result["windows"] = scored.windows;
    result["window_nll"] = scored.window_nll;
    result["window_tokens"] = scored.window_tokens;
    for (const PositionLoss& part : scored.by_position) {
      result["by_position"].push_back({{"begin", part.begin},
                                       {"end", part.end},
                                       {"nll", part.nll},
                                       {"stderr", part.nll_stderr},
                                       {"tokens", part.tokens}});
    }
    result["pairs_kept"] = share(method.pairs());
    result["seconds"] = progress.seconds();
    result["dominance"] = nullptr;
    if (lists != nullptr) {
      const Dominance dominance = lists->dominance();
      if (!dominance.largest_share.empty()) {
        result["dominance"] = nlohmann::json::array();
        for (const auto& [layer, largest] : dominance.largest_share) result["dominance"].push_back(largest);
        for (const auto& [layer, unused] : dominance.unused_lists) result["unused_lists"].push_back(unused);
      }
    }
    return !interrupted();
  }

  /// What training sees; the hard mask of `eval` without --soft-gate is what is then used.
  std::unique_ptr<AttentionMethod> open_soft_gate(const Session& session, const OptionTable& table) {
    if (table.changed("method") || table.changed("routing")) {
      fail_usage("--soft-gate: the gate is a method of its own, without --method and --routing");
    }
    if (!common_.adapter) fail_usage("--soft-gate needs --adapter: a folder made by focus train");
    const Adapter adapter = open_adapter(session, *common_.adapter, common_.force, attention_, table);
    router_ = adapter.router;
    if (router_ == nullptr) fail_usage("--soft-gate: {} has no lists", common_.adapter->string());
    if (!router_->config().symmetric) fail_usage("--soft-gate: this adapter is not of the paper's form (--symmetric)");
    GroupBalance balance;
    balance.normaliser = trained_normaliser(adapter.training);
    return std::make_unique<SoftGateAttention>(router_->config(), *soft_gate_, router_->layers(), balance);
  }

  /// The normaliser that an adapter was trained with; Sinkhorn, the paper's, where it does not say.
  GroupNormaliser trained_normaliser(const nlohmann::json& training) const {
    if (!training.is_object() || !training.contains("normaliser")) return GroupNormaliser::kSinkhorn;
    for (const auto& [name, normaliser] : group_normalisers()) {
      if (training["normaliser"] == name) return normaliser;
    }
    fail("adapter {}: \"normaliser\" is {}, which is none that --soft-gate knows", common_.adapter->string(),
         json_text(training["normaliser"]));
  }

  static int interrupted_exit() {
    log_warning("interrupted: no result");
    return 1;
  }

  template <typename Line>
  static void perplexity_lines(const nlohmann::json& result, Line line) {
    line("perplexity",
         fmt::format("{:.4f} (nll {:.4f}{}; {} tokens scored, context {}, stride {})",
                     result["perplexity"].get<double>(), result["nll"].get<double>(),
                     error_text(result["nll_stderr"].get<double>()), result["tokens_scored"].get<int64_t>(),
                     result["context"].get<int64_t>(), result["stride"].get<int64_t>()));
    std::string parts;
    for (const auto& part : result["by_position"]) {
      parts += fmt::format("{}{:.4f} (from {})", parts.empty() ? "" : ", ", part["nll"].get<double>(),
                           part["begin"].get<int64_t>());
    }
    line("nll by position", parts);
    line("pairs kept", fmt::format("{:.2f}%", 100 * result["pairs_kept"].get<double>()));
    if (result["dominance"].is_array()) {
      const auto shares = result["dominance"].get<std::vector<double>>();
      line("dominance",
           fmt::format("{:.2f}% of keys in the largest list of any layer, {:.2f}% on average",
                       100 * *std::max_element(shares.begin(), shares.end()),
                       100 * std::reduce(shares.begin(), shares.end()) / static_cast<double>(shares.size())));
    }
  }

  void report(const nlohmann::json& result, const RunContext& run) const {
    if (common_.out) {
      nlohmann::json record = result;
      record["options"] = run.options.record();
      write_file_atomically(*common_.out / "eval.json", json_text(record, 2) + "\n");
    }
    if (common_.json) {
      write_json_line(result);
      return;
    }
    std::string text;
    const auto line = [&](const std::string& name, const std::string& value) {
      text += fmt::format("{:<22}{}\n", name, value);
    };
    line("method", result["method"].get<std::string>());
    if (result.contains("perplexity")) perplexity_lines(result, line);
    line("leak probe",
         fmt::format("{:.3g} largest change of an earlier logit", result["leak_max_abs_diff"].get<double>()));
    for (const auto& [name, scores] : tasks_.lines()) line(name, scores);
    write_output(text);
  }

  AttentionOptions attention_;
  std::optional<int64_t> context_;
  std::optional<int64_t> stride_;
  int64_t max_windows_ = 0;
  EvalTasks tasks_;
  bool allow_leak_ = false;
  std::optional<double> soft_gate_;
  std::shared_ptr<const Router> router_;  // Of --soft-gate.
};

}  // namespace

std::unique_ptr<Command> make_eval_command() {
  return std::make_unique<EvalCommand>();
}

}  // namespace focus
