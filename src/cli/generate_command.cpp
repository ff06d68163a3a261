#include "cli/generate_command.h"

#include "attention/methods/registry.h"
#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "cli/output.h"
#include "cli/session.h"
#include "generate/generator.h"

namespace focus {

namespace {

class GenerateCommand : public Command {
 public:
  void declare(OptionTable& table) override {
    common_.declare(table, kModelFlags | kAdapterFlag | kSeedFlag);
    table.section("Prompt");
    table.add("prompt", &prompt_, "text to continue").short_flag('p');
    table.add("prompt-file", &prompt_file_, "file with the text to continue, as it is").short_flag('f');
    table.section("Generation");
    table.add("max-new-tokens", &options_.max_new_tokens, "tokens to generate at most").short_flag('n').at_least(1);
    table.add("temperature", &options_.sampling.temperature, "0 takes the most likely token each time").at_least(0);
    table.add("top-k", &options_.sampling.top_k, "choose among the k most likely tokens, 0: all").at_least(0);
    table.add("top-p", &options_.sampling.top_p, "choose among the most likely tokens that make up this probability")
        .above(0)
        .at_most(1);
    table.add("ignore-eos", &ignore_eos_, "go on after an end-of-text token");
    table.add("prefill-chunk", &options_.prefill_chunk, "prompt tokens processed at a time").at_least(1);
    table.add("cache", &options_.use_cache, "keep keys and values; --no-cache recomputes everything for each token");
    attention_.declare(table, method_names());
  }

  int run(const RunContext& run) override {
    attention_.resolve(run.options);
    if (prompt_.has_value() == prompt_file_.has_value()) fail_usage("give either --prompt or --prompt-file");
    const std::string prompt = prompt_ ? *prompt_ : read_file(*prompt_file_);
    const Session session = open_session(common_, run.device);
    const std::unique_ptr<AttentionMethod> method = open_method(session, common_, attention_, run.options);
    if (!method->is_causal()) fail_usage("method {} reads later tokens: it cannot generate", method->name());
    options_.sampling.seed = static_cast<uint64_t>(common_.seed);
    if (!ignore_eos_) options_.stop_ids = session.model->config().eos_ids;
    const std::vector<int32_t> ids = session.tokenizer.encode(prompt, /*add_special_tokens=*/true);

    const InterruptGuard guard;
    StreamDecoder decoder(session.tokenizer);
    // What special tokens and the prompt turn into is context for the decoder, not output.
    for (const int32_t id : ids) decoder.push(id);
    std::string text;
    bool prompt_shown = common_.json;  // Shown with the first token, so that a refused prompt leaves the output empty.
    const auto emit = [&](const std::string& piece) {
      if (!prompt_shown) write_output(prompt);
      prompt_shown = true;
      text += piece;
      if (!common_.json) write_output(piece);
    };
    const GenerateResult result = generate(*session.model, *method, ids, options_, [&](int32_t id) {
      emit(decoder.push(id));
      return !interrupted();
    });
    emit(decoder.finish());
    if (!common_.json) write_output("\n");

    const double prefill_rate = static_cast<double>(ids.size()) / std::max(result.prefill_seconds, 1e-9);
    const double decode_rate = static_cast<double>(result.ids.size()) / std::max(result.decode_seconds, 1e-9);
    log_info(
        "{} + {} tokens ({}), prefill {:.1f} tokens/s, decode {:.1f} tokens/s, pairs kept {:.1f}% and {:.1f}%, cache "
        "{:.1f} MB",
        ids.size(), result.ids.size(), method->name(), prefill_rate, decode_rate, 100 * share(result.prefill_pairs),
        100 * share(result.decode_pairs), static_cast<double>(result.cache_bytes) / 1e6);
    if (common_.json) {
      write_json_line({{"text", text},
                       {"ids", result.ids},
                       {"prompt_ids", ids},
                       {"stop_reason", result.stopped  ? "eos"
                                       : interrupted() ? "interrupted"
                                                       : "length"},
                       {"method", method->name()},
                       {"prefill_tokens_per_s", prefill_rate},
                       {"decode_tokens_per_s", decode_rate},
                       {"pairs_kept_prefill", share(result.prefill_pairs)},
                       {"pairs_kept_decode", share(result.decode_pairs)},
                       {"cache_bytes", result.cache_bytes}});
    }
    return interrupted() ? 1 : 0;
  }

 private:
  AttentionOptions attention_;
  GenerateOptions options_;
  std::optional<std::string> prompt_;
  std::optional<std::filesystem::path> prompt_file_;
  bool ignore_eos_ = false;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() {
  return std::make_unique<GenerateCommand>();
}

}  // namespace focus
