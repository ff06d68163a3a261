#include "cli/convert_command.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace focus {

namespace {

namespace fs = std::filesystem;

/// scripts/convert.py of the source tree that the program was built in, or of the installation.
fs::path find_script() {
  const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path candidates[] = {bin / "../../../scripts/convert.py", bin / "../share/focus/convert.py"};
  for (const fs::path& candidate : candidates) {
    if (fs::exists(candidate)) return fs::canonical(candidate);
  }
  fail("convert: neither {} nor {} exists", candidates[0].lexically_normal().string(),
       candidates[1].lexically_normal().string());
}

/// $FOCUS_PYTHON, the virtual environment beside the scripts, or python3.
std::string find_python(const fs::path& script) {
  if (const char* chosen = std::getenv("FOCUS_PYTHON")) return chosen;
  const fs::path own = script.parent_path().parent_path() / ".venv/bin/python";
  return fs::exists(own) ? own.string() : "python3";
}

/// Runs a program with its output passed through and returns its exit status.
int run_program_and_wait(const std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  const pid_t child = ::fork();
  require(child >= 0, "convert: cannot start {}: {}", arguments.front(), std::strerror(errno));
  if (child == 0) {
    ::execvp(pointers.front(), pointers.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) require(errno == EINTR, "convert: waiting: {}", std::strerror(errno));
  require(WIFEXITED(status), "convert: {} was ended by signal {}", arguments.front(), WTERMSIG(status));
  require(WEXITSTATUS(status) != 127,
          "convert: {} cannot be run; FOCUS_PYTHON names a Python with torch, gguf and "
          "safetensors",
          arguments.front());
  return WEXITSTATUS(status);
}

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
    const fs::path script = find_script();
    std::vector<std::string> arguments = {find_python(script), script.string(), "--shard-gb",
                                          fmt::format("{}", shard_gb_)};
    if (tokenizer_) arguments.insert(arguments.end(), {"--tokenizer", tokenizer_->string()});
    if (dtype_) arguments.insert(arguments.end(), {"--dtype", *dtype_});
    arguments.insert(arguments.end(), {"--", source_.string(), out_.string()});
    return run_program_and_wait(arguments) == 0 ? 0 : 1;
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
