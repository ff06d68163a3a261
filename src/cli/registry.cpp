#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/convert_command.h"
#include "cli/eval_command.h"
#include "cli/generate_command.h"
#include "cli/inspect_command.h"
#include "cli/reproduce_command.h"
#include "cli/train_command.h"

namespace focus {

// To add a command: include its header, add one line below and its file to CMakeLists.txt.

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> entries = {
      {"train", "train the routers of a model whose weights stay as they are", make_train_command},
      {"eval", "perplexity, pairs kept, dominance, leak probe and tasks", make_eval_command},
      {"generate", "continue a text", make_generate_command},
      {"inspect", "show what the groups of an adapter hold and reach, as a page or as figures", make_inspect_command},
      {"reproduce", "the paper's tables, measured anew beside its own figures", make_reproduce_command},
      {"convert", "make a Hugging Face folder of a GGUF file or of PyTorch weights", make_convert_command},
      {"bench", "time attention against dense attention, after checking the results", make_bench_command},
  };
  return entries;
}

}  // namespace focus
