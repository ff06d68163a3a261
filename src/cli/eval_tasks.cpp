#include "cli/eval_tasks.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/progress.h"
#include "chat/chat_template.h"
#include "data/text_source.h"
#include "eval/statistics.h"
#include "eval/tasks/retrieval.h"
#include "eval/tasks/runner.h"

namespace focus {

namespace {

/// Room for what is asked beside the prefix, when the flags are checked before any prompt is made.
constexpr int64_t kQuestionTokens = 16;
constexpr int64_t kDefaultNeedleLength = 2048;

std::optional<int32_t> special_id(const Session& session, const std::filesystem::path& model, const char* name) {
  const auto text = special_token(model, name);
  return text ? session.tokenizer.id_of(*text) : std::nullopt;
}

constexpr const char* kNeedle = "needle";
constexpr const char* kMultiKey = "multi-key";

bool is_retrieval(const std::string& name) {
  return name == kNeedle || name == kMultiKey;
}

std::vector<std::string> task_names() {
  std::vector<std::string> names = {"copy", kNeedle, kMultiKey};
  for (const TaskEntry& entry : file_tasks()) names.push_back(entry.name);
  return names;
}

}  // namespace

const Document& longest(const std::vector<Document>& documents) {
  return *std::max_element(documents.begin(), documents.end(),
                           [](const Document& a, const Document& b) { return a.size() < b.size(); });
}

void EvalTasks::declare(OptionTable& table) {
  table.section("Tasks");
  table
      .add("tasks", &names_,
           "benchmarks (docs/tasks.md); copy: a passage of 256 tokens repeated after 700 others of --data; needle and "
           "multi-key: numbers to be found in a long text")
      .one_of(task_names());
  table.add("tasks-data", &folder_, "folder of the benchmarks").value_name("DIR");
  table.add("limit", &limit_, "first items of each task (of blimp: of each paradigm)")
      .at_least(1)
      .default_text("all; 16 for copy, 50 for needle and multi-key");
  table.add("shots", &shots_, "worked examples before each item, taken from the task's other items")
      .at_least(0)
      .default_text("0; 8 for gsm8k");
  table.add("prefix", &prefix_, "a book, stretches of which are put before the items and around the needles")
      .value_name("FILE");
  table.add("prefix-tokens", &prefix_tokens_, "tokens of the book before each item of a benchmark").at_least(0);
  table
      .add("task-context", &context_,
           "most tokens of a benchmark's prompt and answer; what is longer loses its left part")
      .at_least(2)
      .default_text("the model's context");
  table.add("needle-length", &needle_length_, "tokens of an item of needle and multi-key, at most")
      .at_least(64)
      .default_text("2048, or the model's context if that is shorter");
  table.add("needle-keys", &keys_, "numbers in an item of multi-key, of which one is asked for")
      .at_least(2)
      .at_most(24);
  table.add("copy-passage", &copy_.passage, "tokens that task copy repeats").at_least(2);
  table.add("copy-filler", &copy_.filler, "tokens between the two occurrences").at_least(0);
}

bool EvalTasks::wanted(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

void EvalTasks::prepare(const OptionTable& table, const CommonOptions& common) {
  const bool benchmarks = std::any_of(names_.begin(), names_.end(), is_file_task);
  const auto belongs = [&](const char* flag, bool used, const char* to) {
    if (table.changed(flag) && !used) fail_usage("--{} belongs to {}", flag, to);
  };
  belongs("limit", any(), "--tasks");
  belongs("tasks-data", benchmarks, "a benchmark in --tasks");
  for (const char* flag : {"shots", "prefix-tokens", "task-context"})
    belongs(flag, benchmarks, "a benchmark in --tasks");
  const bool retrieval = std::any_of(names_.begin(), names_.end(), is_retrieval);
  belongs("prefix", prefix_tokens_ > 0 || retrieval, "--prefix-tokens, --tasks needle and --tasks multi-key");
  belongs("needle-length", retrieval, "--tasks needle and --tasks multi-key");
  belongs("needle-keys", wanted(kMultiKey), "--tasks multi-key");
  if (retrieval && !prefix_) fail_usage("--tasks needle and multi-key need --prefix: the book that hides the numbers");
  for (const char* flag : {"copy-passage", "copy-filler"}) belongs(flag, wanted("copy"), "--tasks copy");
  if (wanted("copy") && common.data.empty()) fail_usage("--tasks copy needs --data: the text that it copies from");
  if (prefix_tokens_ > 0 && !prefix_) fail_usage("--prefix-tokens needs --prefix: the book that they come from");
  for (size_t i = 0; i < names_.size(); ++i) {
    if (std::count(names_.begin(), names_.end(), names_[i]) > 1) fail_usage("--tasks names {} twice", names_[i]);
  }
  if (limit_) copy_.items = *limit_;
  for (const std::string& name : names_) {
    if (!is_file_task(name)) continue;
    if (!folder_) fail_usage("--tasks {} needs --tasks-data: the folder of the benchmarks", name);
    benchmarks_.push_back(read_task(name, *folder_));
  }
}

void EvalTasks::open(const Session& session, const CommonOptions& common) {
  const int64_t positions = session.model->config().max_positions;
  const int64_t copy_length = 2 * copy_.passage + copy_.filler;
  if (wanted("copy") && copy_length > positions) {
    fail_usage("--tasks copy needs {} tokens (--copy-passage {} twice, --copy-filler {}), the model's context is {}",
               copy_length, copy_.passage, copy_.filler, positions);
  }
  if (context_ && *context_ > positions) {
    fail_usage("--task-context {}: the model's context is {}", *context_, positions);
  }
  if (prefix_tokens_ + kQuestionTokens > context_.value_or(positions)) {
    fail_usage("--prefix-tokens {} leaves no room for the items, the model's context is {}", prefix_tokens_,
               context_.value_or(positions));
  }
  if (!prefix_) return;
  const TextCorpus corpus = read_texts(*prefix_);
  const std::string& text = *std::max_element(corpus.documents.begin(), corpus.documents.end(),
                                              [](const auto& a, const auto& b) { return a.size() < b.size(); });
  const int64_t length = needle_length_.value_or(std::min(kDefaultNeedleLength, positions));
  if (length > positions) fail_usage("--needle-length {}: the model's context is {}", length, positions);
  const bool retrieval = wanted(kNeedle) || wanted(kMultiKey);
  book_.emplace(session.tokenizer, text, std::max(prefix_tokens_, retrieval ? length : 0), prefix_->string());
  for (const std::string& name : names_) {
    if (!is_retrieval(name)) continue;
    RetrievalOptions options;
    options.length = length;
    options.keys = name == kMultiKey ? keys_ : 1;
    options.items = limit_.value_or(options.items);
    options.seed = static_cast<uint64_t>(common.seed);
    benchmarks_.push_back(make_retrieval(name, *book_, session.tokenizer, options));
  }
}

std::vector<Document> EvalTasks::probe_documents(const Session& session) const {
  constexpr size_t kBytes = 4000;
  std::vector<Document> documents;
  for (const Task& task : benchmarks_) {
    std::string text;
    for (size_t i = 0; i < task.items.size() && text.size() < kBytes; ++i) {
      text += task.items[i].context + task.delimiter + task.items[i].choices[0] + "\n\n";
    }
    documents.push_back(session.tokenizer.encode(text, true));
  }
  return documents;
}

bool EvalTasks::run_copy(const Session& session, AttentionMethod& method, const std::vector<Document>& documents,
                         nlohmann::json& result) {
  Progress progress("copying", copy_.items, "items");
  const CopyTaskResult copied =
      evaluate_copy(*session.model, method, longest(documents), copy_, [&](int64_t done, int64_t) {
        progress.set(done);
        return !interrupted();
      });
  if (interrupted()) return false;
  const double kept = share(copied.pairs);
  result["copy_nll"] = copied.nll;
  result["pairs_kept_copy"] = kept;
  result["tasks"]["copy"] = {{"nll", copied.nll},
                             {"stderr", copied.nll_stderr},
                             {"n", copied.items},
                             {"pairs_kept", kept},
                             {"item_nll", copied.item_nll}};
  lines_.emplace_back("copying", fmt::format("nll {:.4f}{} ({} items, {:.2f}% of pairs)", copied.nll,
                                             error_text(copied.nll_stderr), copied.items, 100 * kept));
  return true;
}

bool EvalTasks::run_benchmark(const Session& session, AttentionMethod& method, const Task& task,
                              const CommonOptions& common, nlohmann::json& result) {
  TaskOptions options;
  options.limit = limit_;
  if (!is_retrieval(task.name)) {
    options.shots = shots_;
    options.prefix_tokens = prefix_tokens_;
    options.context = context_;
  }
  options.book = book_ ? &*book_ : nullptr;
  options.seed = static_cast<uint64_t>(common.seed);
  options.prefix_id = special_id(session, common.model, "bos_token");
  const auto end = special_id(session, common.model, "eos_token");
  if (!options.prefix_id) options.prefix_id = end;
  options.stop_ids = session.model->config().eos_ids;
  if (end) options.stop_ids.push_back(*end);
  std::optional<Progress> progress;
  const auto scored =
      run_task(*session.model, method, session.tokenizer, task, options, [&](int64_t done, int64_t total) {
        if (total == 0) return !interrupted();
        if (!progress) progress.emplace(task.name, total, "texts");
        progress->set(done);
        return !interrupted();
      });
  if (!scored) return false;
  result["tasks"][task.name] = scored->summary;
  lines_.emplace_back(task.name, scored->line);
  if (!common.out) return true;
  std::string items;
  for (const nlohmann::json& item : scored->items) {
    items += json_text(item) + "\n";
  }
  write_file_atomically(*common.out / fmt::format("items-{}.jsonl", task.name), items);
  return true;
}

bool EvalTasks::run(const Session& session, AttentionMethod& method, const std::vector<Document>& documents,
                    const CommonOptions& common, nlohmann::json& result) {
  for (const std::string& name : names_) {
    if (name == "copy") {
      if (!run_copy(session, method, documents, result)) return false;
      continue;
    }
    const auto task =
        std::find_if(benchmarks_.begin(), benchmarks_.end(), [&](const Task& t) { return t.name == name; });
    if (!run_benchmark(session, method, *task, common, result)) return false;
  }
  return true;
}

}  // namespace focus
