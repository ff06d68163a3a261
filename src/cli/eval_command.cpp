#include "cli/eval_command.h"

#include <algorithm>
#include <numeric>

#include "attention/methods/list_attention.h"
#include "attention/methods/registry.h"
#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/output.h"
#include "cli/session.h"
#include "eval/copy_task.h"
#include "eval/leak_probe.h"
#include "eval/perplexity.h"

namespace focus {

namespace {

constexpr int64_t kDefaultContext = 2048;

/// The longest document: the one that single-text measurements use.
const Document& longest(const std::vector<Document>& documents) {
  return *std::max_element(documents.begin(), documents.end(),
                           [](const Document& a, const Document& b) { return a.size() < b.size(); });
}

class EvalCommand : public Command {
 public:
  void declare(OptionTable& table) override {
    common_.declare(table, kModelFlags | kRopeFlag | kAdapterFlag | kLoraFlag | kDataFlags | kOutFlag | kSeedFlag);
    table.section("Evaluation");
    table.add("context", &context_, "tokens a window")
        .at_least(2)
        .default_text("2048, or the model's context if that is shorter");
    table.add("stride", &stride_, "tokens from one window to the next").at_least(1).default_text("the context");
    table.add("max-windows", &max_windows_, "score the first N windows only, 0 for all").at_least(0);
    table.add("tasks", &tasks_, "tasks besides perplexity: copy, a passage of 256 tokens repeated after 700 others")
        .one_of({"copy"});
    table.add("limit", &copy_.items, "items of each task").at_least(1);
    table.add("copy-passage", &copy_.passage, "tokens that task copy repeats").at_least(2);
    table.add("copy-filler", &copy_.filler, "tokens between the two occurrences").at_least(0);
    table.add("allow-leak", &allow_leak_, "report figures even if later tokens change earlier logits");
    attention_.declare(table, method_names());
  }

  int run(const RunContext& run) override {
    attention_.resolve(run.options);
    if (common_.out) prepare_output_folder(*common_.out, "--out");
    const Session session = open_session(common_, run.device);
    const ModelConfig& config = session.model->config();
    const int64_t context = context_.value_or(std::min(kDefaultContext, config.max_positions));
    const int64_t stride = stride_.value_or(context);
    if (context > config.max_positions) {
      fail_usage("--context {}: the model's context is {}", context, config.max_positions);
    }
    const int64_t copy_length = 2 * copy_.passage + copy_.filler;
    if (!tasks_.empty() && copy_length > config.max_positions) {
      fail_usage("--tasks copy needs {} tokens (--copy-passage {} twice, --copy-filler {}), the model's context is {}",
                 copy_length, copy_.passage, copy_.filler, config.max_positions);
    }
    const std::unique_ptr<AttentionMethod> method = open_method(session, common_, attention_, run.options);
    const std::vector<Document> documents = read_documents(session.tokenizer, common_);
    require_tokens(documents, 2, common_.data.string());
    std::vector<EvalWindow> windows = eval_windows(documents, context, stride);
    require(!windows.empty(), "{}: no document has 2 tokens or more: nothing to predict", common_.data.string());
    if (max_windows_ > 0 && std::ssize(windows) > max_windows_) windows.resize(max_windows_);

    const InterruptGuard guard;
    nlohmann::json result = {{"method", method->name()}, {"context", context}, {"stride", stride}};
    probe(session, *method, documents, result);
    if (!perplexity(session, *method, documents, windows, result)) return interrupted_exit();
    for (const std::string& task : tasks_) {
      if (task == "copy" && !copy(session, *method, longest(documents), result)) return interrupted_exit();
    }
    report(result, run);
    return 0;
  }

 private:
  void probe(const Session& session, AttentionMethod& method, const std::vector<Document>& documents,
             nlohmann::json& result) const {
    const LeakProbeResult leak = probe_leak(*session.model, method, documents, static_cast<uint64_t>(common_.seed));
    result["leak_max_abs_diff"] = leak.max_abs_diff;
    result["leak_tolerance"] = leak.tolerance;
    result["leaks"] = leak.leaks();
    if (!leak.leaks()) return;
    const std::string what =
        fmt::format("later tokens change earlier logits by up to {:.3g} (prefix of {} tokens; rounding allows {:.1g})",
                    leak.max_abs_diff, leak.worst_prefix, leak.tolerance);
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

  bool copy(const Session& session, AttentionMethod& method, const Document& document, nlohmann::json& result) const {
    Progress progress("copying", copy_.items, "items");
    const CopyTaskResult copied = evaluate_copy(*session.model, method, document, copy_, [&](int64_t done, int64_t) {
      progress.set(done);
      return !interrupted();
    });
    result["copy_nll"] = copied.nll;
    result["pairs_kept_copy"] = share(copied.pairs);
    result["tasks"]["copy"] = {{"nll", copied.nll},
                               {"stderr", copied.nll_stderr},
                               {"n", copied.items},
                               {"pairs_kept", share(copied.pairs)},
                               {"item_nll", copied.item_nll}};
    return !interrupted();
  }

  static int interrupted_exit() {
    log_warning("interrupted: no result");
    return 1;
  }

  void report(const nlohmann::json& result, const RunContext& run) const {
    if (common_.out) {
      nlohmann::json record = result;
      record["options"] = run.options.record();
      write_file_atomically(*common_.out / "eval.json", record.dump(2) + "\n");
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
    line("perplexity", fmt::format("{:.4f} (nll {:.4f} +- {:.4f}; {} tokens scored, context {}, stride {})",
                                   result["perplexity"].get<double>(), result["nll"].get<double>(),
                                   result["nll_stderr"].get<double>(), result["tokens_scored"].get<int64_t>(),
                                   result["context"].get<int64_t>(), result["stride"].get<int64_t>()));
    line("pairs kept", fmt::format("{:.2f}%", 100 * result["pairs_kept"].get<double>()));
    if (result["dominance"].is_array()) {
      const auto shares = result["dominance"].get<std::vector<double>>();
      line("dominance",
           fmt::format("{:.2f}% of keys in the largest list of any layer, {:.2f}% on average",
                       100 * *std::max_element(shares.begin(), shares.end()),
                       100 * std::reduce(shares.begin(), shares.end()) / static_cast<double>(shares.size())));
    }
    line("leak probe",
         fmt::format("{:.3g} largest change of an earlier logit", result["leak_max_abs_diff"].get<double>()));
    if (result.contains("copy_nll")) {
      line("copying",
           fmt::format("nll {:.4f} +- {:.4f} ({} items, {:.2f}% of pairs)", result["copy_nll"].get<double>(),
                       result["tasks"]["copy"]["stderr"].get<double>(), result["tasks"]["copy"]["n"].get<int64_t>(),
                       100 * result["pairs_kept_copy"].get<double>()));
    }
    write_output(text);
  }

  AttentionOptions attention_;
  std::optional<int64_t> context_;
  std::optional<int64_t> stride_;
  int64_t max_windows_ = 0;
  std::vector<std::string> tasks_;
  CopyTaskOptions copy_;
  bool allow_leak_ = false;
};

}  // namespace

std::unique_ptr<Command> make_eval_command() {
  return std::make_unique<EvalCommand>();
}

}  // namespace focus
