#include "cli/generate_command.h"

#include <algorithm>

#include "attention/methods/registry.h"
#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cli/device.h"
#include "cli/output.h"
#include "cli/prompts.h"
#include "cli/session.h"
#include "generate/generator.h"
#include "generate/text_stream.h"

namespace focus {

namespace {

double rate(int64_t tokens, double seconds) {
  return static_cast<double>(tokens) / std::max(seconds, 1e-9);
}

class GenerateCommand : public Command {
 public:
  void declare(OptionTable& table) override {
    common_.declare(table, kModelFlags | kWeightsFlag | kRopeFlag | kAdapterFlag | kLoraFlag | kSeedFlag);
    table.section("Prompt");
    table.add("prompt", &prompt_, "text to continue").short_flag('p');
    table.add("prompt-file", &prompt_file_, "file with the text to continue, as it is").short_flag('f');
    table.add("prompts", &prompts_file_,
              "file of prompts to continue side by side: one a line, or .jsonl with the field \"prompt\"");
    table.add("chat", &chat_, "each prompt is a user's message, put into the model's chat template");
    table.add("system", &system_, "system message of the chat");
    table.section("Generation");
    table.add("max-new-tokens", &options_.max_new_tokens, "tokens to generate at most").short_flag('n').at_least(1);
    table
        .add("max-context", &options_.max_context,
             "most tokens of prompt and text together, which bounds the cache; the text ends there")
        .at_least(2)
        .default_text("the model's context, which prompt and new tokens must fit");
    table.add("temperature", &options_.sampling.temperature, "0 takes the most likely token each time").at_least(0);
    table.add("top-k", &options_.sampling.top_k, "choose among the k most likely tokens, 0: all").at_least(0);
    table.add("top-p", &options_.sampling.top_p, "choose among the most likely tokens that make up this probability")
        .above(0)
        .at_most(1);
    table
        .add("min-p", &options_.sampling.min_p,
             "choose among tokens of at least this share of the most likely one's probability, 0: all")
        .at_least(0)
        .below(1);
    table
        .add("repetition-penalty", &options_.sampling.repetition_penalty,
             "divides the scores of tokens seen before, 1: none")
        .above(0);
    table.add("stop", &stops_, "end before this text; may be given several times").repeatable();
    table.add("stop-id", &stop_ids_, "token ids that end the text too").at_least(0);
    table.add("ignore-eos", &ignore_eos_, "go on after an end-of-text token");
    table.add("prefill-chunk", &options_.prefill_chunk, "prompt tokens processed at a time").at_least(1);
    table.add("cache-dtype", &cache_dtype_, "keep keys and values in this type")
        .one_of({"float32", "bfloat16", "float16"})
        .default_text("the model's");
    table.add("cache", &options_.use_cache, "keep keys and values; --no-cache recomputes everything for each token");
    attention_.declare(table, method_names(), "focus with --adapter, else full");
  }

  int run(const RunContext& run) override {
    attention_.resolve(run.options);
    attention_.choose_method(run.options, common_.adapter.has_value());
    const std::vector<std::string> texts = prompt_texts();
    if (system_ && !chat_) fail_usage("--system belongs to --chat");
    for (const char* flag : {"top-k", "top-p", "min-p"}) {
      if (options_.sampling.temperature == 0 && run.options.changed(flag)) {
        fail_usage("--{}: --temperature 0 takes the most likely token each time", flag);
      }
    }
    for (const char* flag : {"cache-dtype", "prefill-chunk"}) {
      if (!options_.use_cache && run.options.changed(flag)) fail_usage("--{}: there is no cache with --no-cache", flag);
    }
    options_.cache_dtype = parse_dtype(cache_dtype_);
    const Session session = open_session(common_, run.device);
    const std::unique_ptr<AttentionMethod> method = open_method(session, common_, attention_, run.options);
    if (!method->is_causal()) fail_usage("method {} reads later tokens: it cannot generate", method->name());
    options_.sampling.seed = static_cast<uint64_t>(common_.seed);
    options_.sampling.model = common_.model.string();
    options_.stop_ids = stop_ids(session);
    const PromptEncoder encoder(session, common_.model, chat_, system_);
    std::vector<Prompt> prompts;
    std::vector<std::vector<int32_t>> ids;
    for (const std::string& text : texts) {
      prompts.push_back(encoder.encode(text));
      ids.push_back(prompts.back().ids);
    }

    const InterruptGuard guard;
    std::vector<TextStream> streams;
    for (const Prompt& prompt : prompts) streams.emplace_back(session.tokenizer, prompt.ids, stops_);
    std::vector<std::string> written(prompts.size());
    const bool live = prompts.size() == 1 && !common_.json;
    bool prompt_shown =
        !live || chat_;  // Shown with the first token, so that a refused prompt leaves the output empty.
    const auto emit = [&](size_t row, const std::string& piece) {
      if (!prompt_shown) write_output(prompts[row].text);
      prompt_shown = true;
      written[row] += piece;
      if (live) write_output(piece);
    };
    const GenerateResult result = generate(*session.model, *method, ids, options_, [&](int64_t row, int32_t id) {
      emit(static_cast<size_t>(row), streams[static_cast<size_t>(row)].push(id));
      return !interrupted() && !streams[static_cast<size_t>(row)].stopped();
    });
    for (size_t row = 0; row < streams.size(); ++row) emit(row, streams[row].finish());
    report(session, *method, prompts, written, streams, result);
    return interrupted() ? 1 : 0;
  }

 private:
  std::vector<std::string> prompt_texts() const {
    if (prompt_.has_value() + prompt_file_.has_value() + prompts_file_.has_value() != 1) {
      fail_usage("give one of --prompt, --prompt-file and --prompts");
    }
    if (prompts_file_) return read_prompts(*prompts_file_);
    return {prompt_ ? *prompt_ : read_file(*prompt_file_)};
  }

  /// Those of config.json and generation_config.json, the tokenizer's end-of-text token, and --stop-id.
  std::vector<int64_t> stop_ids(const Session& session) const {
    std::vector<int64_t> ids = stop_ids_;
    for (const int64_t id : ids) {
      if (id >= session.model->config().vocab_size) {
        fail_usage("--stop-id {}: the model has {} ids", id, session.model->config().vocab_size);
      }
    }
    if (ignore_eos_) return ids;
    const std::vector<int64_t>& model_ids = session.model->config().eos_ids;
    ids.insert(ids.end(), model_ids.begin(), model_ids.end());
    if (const auto text = special_token(common_.model, "eos_token")) {
      if (const auto id = session.tokenizer.id_of(*text)) ids.push_back(*id);
    }
    return ids;
  }

  static const char* reason_name(StopReason reason, bool stop_text) {
    switch (reason) {
      case StopReason::kStopId:
        return "eos";
      case StopReason::kContext:
        return "context";
      case StopReason::kLength:
        return "length";
      case StopReason::kCaller:
        break;
    }
    return stop_text ? "stop" : "interrupted";
  }

  void report(const Session& session, const AttentionMethod& method, const std::vector<Prompt>& prompts,
              const std::vector<std::string>& written, const std::vector<TextStream>& streams,
              const GenerateResult& result) const {
    int64_t prompt_tokens = 0, new_tokens = 0;
    for (const Prompt& prompt : prompts) prompt_tokens += std::ssize(prompt.ids);
    for (const Continuation& row : result.rows) new_tokens += std::ssize(row.ids);
    const double prefill_rate = rate(prompt_tokens, result.prefill_seconds);
    // The first token of each row comes with the prefill.
    const int64_t decoded = new_tokens - std::ssize(result.rows);
    const nlohmann::json decode_rate =
        decoded > 0 ? nlohmann::json(rate(decoded, result.decode_seconds)) : nlohmann::json();
    const int64_t limit =
        options_.use_cache ? cache_bytes(*session.model, std::ssize(prompts), result.context, options_.cache_dtype) : 0;
    nlohmann::json run = {{"method", method.name()},
                          {"prefill_tokens_per_s", prefill_rate},
                          {"decode_tokens_per_s", decode_rate},
                          {"pairs_kept_prefill", share(result.prefill_pairs)},
                          {"pairs_kept_decode", share(result.decode_pairs)},
                          {"cache_bytes", result.cache_bytes},
                          {"cache_limit_bytes", limit},
                          {"context", result.context}};
    for (size_t row = 0; row < prompts.size(); ++row) {
      const Continuation& continuation = result.rows[row];
      if (!common_.json) {
        if (prompts.size() > 1) write_output((chat_ ? "" : prompts[row].text) + written[row]);
        write_output("\n");
        continue;
      }
      nlohmann::json line = {{"text", written[row]},
                             {"ids", continuation.ids},
                             {"prompt_ids", prompts[row].ids},
                             {"stop_reason", reason_name(continuation.reason, streams[row].stopped())}};
      if (prompts.size() == 1) line.update(run);
      write_json_line(line);
    }
    if (common_.json && prompts.size() > 1) write_json_line(run);
    const std::string decode_text =
        decode_rate.is_null() ? "nothing" : fmt::format("{:.1f} tokens/s", decode_rate.get<double>());
    log_info(
        "{} + {} tokens ({}), prefill {:.1f} tokens/s, decode {}, pairs kept {:.1f}% and {:.1f}%, cache "
        "{:.1f} MB allocated (keys and values of {} tokens, the most there can be: {:.1f} MB)",
        prompt_tokens, new_tokens, method.name(), prefill_rate, decode_text, 100 * share(result.prefill_pairs),
        100 * share(result.decode_pairs), static_cast<double>(result.cache_bytes) / 1e6, result.context,
        static_cast<double>(limit) / 1e6);
  }

  AttentionOptions attention_;
  GenerateOptions options_;
  std::optional<std::string> prompt_;
  std::optional<std::filesystem::path> prompt_file_;
  std::optional<std::filesystem::path> prompts_file_;
  std::optional<std::string> system_;
  std::optional<std::string> cache_dtype_;
  std::vector<std::string> stops_;
  std::vector<int64_t> stop_ids_;
  bool chat_ = false;
  bool ignore_eos_ = false;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() {
  return std::make_unique<GenerateCommand>();
}

}  // namespace focus
