#include "cli/convert_command.h"

#include <initializer_list>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json_reader.h"
#include "base/log.h"
#include "base/python_script.h"
#include "cli/output.h"
#include "cli/tokenize.h"

namespace focus {

namespace {

namespace fs = std::filesystem;

class ConvertCommand : public Command {
 public:
  void declare(OptionTable& table) override {
    table.section("Conversion");
    table.add_positional("source", &source_, "a GGUF file, or a folder with pytorch_model.bin; or texts").required();
    table.add_positional("out", &out_, "the Hugging Face folder to make; or that of the shards").required();
    table.add("tokenizer", &tokenizer_, "tokenizer.json (or its folder) for a GGUF file, or to tokenize with")
        .value_name("FILE|DIR")
        .default_text("made from a GGUF file's metadata by transformers");
    table.add("dtype", &dtype_, "type of the weights")
        .one_of({"float32", "bfloat16", "float16"})
        .default_text("bfloat16 for GGUF, else as stored");
    table.add("shard-gb", &shard_gb_, "largest file of weights, in units of 10^9 bytes").above(0);
    table.section("Tokenizing");
    table.add("tokenize", &tokenize_, "write the tokens of texts in shards, which --data takes instead of the texts");
    table.add("shard-tokens", &shard_tokens_, "tokens a shard, about").at_least(1);
    table.add("keep-line-wraps", &keep_line_wraps_, "keep single line breaks of .txt files");
    common_.declare(table, 0);
  }

  int run(const RunContext& run) override {
    const auto refuse = [&](std::initializer_list<const char*> flags, const char* where) {
      for (const char* flag : flags) {
        if (run.options.changed(flag)) fail_usage("--{} has no meaning {}", flag, where);
      }
    };
    if (tokenize_) {
      refuse({"dtype", "shard-gb"}, "with --tokenize");
      return tokenize(run.threads);
    }
    refuse({"shard-tokens", "keep-line-wraps"}, "without --tokenize");
    check_source();
    std::vector<std::string> command = python_command(find_script("convert.py"));
    command.insert(command.end(), {"--shard-gb", fmt::format("{}", shard_gb_)});
    if (tokenizer_) command.insert(command.end(), {"--tokenizer", tokenizer_->string()});
    if (dtype_) command.insert(command.end(), {"--dtype", *dtype_});
    if (common_.json) command.emplace_back("--json");
    if (common_.quiet) command.emplace_back("--quiet");
    command.insert(command.end(), {"--", source_.string(), out_.string()});
    const InterruptGuard guard;
    const int status = run_and_wait(command);
    if (interrupted()) {
      log_warning("interrupted: nothing was written");
      return 1;
    }
    require(status != 127, "convert: {} cannot be run; FOCUS_PYTHON names a Python with torch, gguf and safetensors",
            command.front());
    return status == 0 ? 0 : 1;
  }

 private:
  /// What can be told without Python, which takes seconds to start.
  void check_source() const {
    require(fs::exists(source_), "{}: no such file or folder", source_.string());
    require(!fs::exists(fs::symlink_status(out_)), "{} exists already", out_.string());
    if (tokenizer_) {
      fs::path file = *tokenizer_;
      if (fs::is_directory(file)) file /= "tokenizer.json";
      require(fs::exists(file) || fs::exists(file.string() + ".gz"), "--tokenizer {}: no such file", file.string());
    }
    if (!fs::is_directory(source_)) return;
    if (tokenizer_) fail_usage("--tokenizer is for GGUF files; the tokenizer of {} is kept", source_.string());
    require(fs::exists(source_ / "config.json"), "{}: it has no config.json", source_.string());
    read_json_object(source_ / "config.json");
    const fs::path index = source_ / "pytorch_model.bin.index.json";
    if (fs::exists(index)) {
      read_json_object(index);
    } else {
      require(fs::exists(source_ / "pytorch_model.bin"), "{}: there is no pytorch_model.bin", source_.string());
    }
  }

  int tokenize(int64_t workers) const {
    if (!tokenizer_) fail_usage("--tokenize needs --tokenizer: a model's folder or its tokenizer.json");
    const nlohmann::json summary = tokenize_to_shards({.source = source_,
                                                       .tokenizer = *tokenizer_,
                                                       .out = out_,
                                                       .shard_tokens = shard_tokens_,
                                                       .workers = workers,
                                                       .keep_line_wraps = keep_line_wraps_});
    if (common_.json) {
      write_json_line(summary);
    } else {
      write_output(fmt::format("{}: {} tokens of {} documents in {} shard(s), {:.0f} s\n", out_.string(),
                               summary["tokens"].get<int64_t>(), summary["documents"].get<int64_t>(),
                               summary["shards"].get<int64_t>(), summary["seconds"].get<double>()));
    }
    return 0;
  }

  fs::path source_;
  fs::path out_;
  std::optional<fs::path> tokenizer_;
  std::optional<std::string> dtype_;
  double shard_gb_ = 2;
  bool tokenize_ = false;
  int64_t shard_tokens_ = TokenizeOptions{}.shard_tokens;
  bool keep_line_wraps_ = false;
};

}  // namespace

std::unique_ptr<Command> make_convert_command() {
  return std::make_unique<ConvertCommand>();
}

}  // namespace focus
