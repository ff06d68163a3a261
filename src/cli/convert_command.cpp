#include "cli/convert_command.h"

#include "base/error.h"
#include "base/python_script.h"

namespace focus {

namespace {

namespace fs = std::filesystem;

class ConvertCommand : public Command {
 public:
  void declare(OptionTable& table) override {
    table.section("Conversion");
    table.add_positional("source", &source_, "a GGUF file, or a folder with pytorch_model.bin").required();
    table.add_positional("out", &out_, "the Hugging Face folder to make").required();
    table.add("tokenizer", &tokenizer_, "tokenizer.json (or its folder) for a GGUF file")
        .value_name("FILE|DIR")
        .default_text("made from the file's metadata by transformers");
    table.add("dtype", &dtype_, "type of the weights")
        .one_of({"float32", "bfloat16", "float16"})
        .default_text("bfloat16 for GGUF, else as stored");
    table.add("shard-gb", &shard_gb_, "largest file of weights, in units of 10^9 bytes").above(0);
    common_.declare(table, 0);
  }

  int run(const RunContext& /*run*/) override {
    std::vector<std::string> command = python_command(find_script("convert.py"));
    command.insert(command.end(), {"--shard-gb", fmt::format("{}", shard_gb_)});
    if (tokenizer_) command.insert(command.end(), {"--tokenizer", tokenizer_->string()});
    if (dtype_) command.insert(command.end(), {"--dtype", *dtype_});
    command.insert(command.end(), {"--", source_.string(), out_.string()});
    const int status = run_and_wait(command);
    require(status != 127, "convert: {} cannot be run; FOCUS_PYTHON names a Python with torch, gguf and safetensors",
            command.front());
    return status == 0 ? 0 : 1;
  }

 private:
  fs::path source_;
  fs::path out_;
  std::optional<fs::path> tokenizer_;
  std::optional<std::string> dtype_;
  double shard_gb_ = 2;
};

}  // namespace

std::unique_ptr<Command> make_convert_command() {
  return std::make_unique<ConvertCommand>();
}

}  // namespace focus
