#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "base/python_text.h"
#include "eval/tasks/families.h"
#include "eval/tasks/reading.h"

namespace focus {

namespace {

TaskItem question(const std::string& text, std::string answer) {
  TaskItem item;
  item.context = "Q: " + text + "\nA:";
  item.choices = {std::move(answer)};
  return item;
}

}  // namespace

// Worked examples with a chain of thought, then the question; the reference is what follows the last ####.
Task read_gsm8k(const std::filesystem::path& folder) {
  Task task;
  task.kind = TaskKind::kGeneration;
  task.stops = {"Q:", "</s>", "<|im_end|>"};
  for_each_record(benchmark_file(folder / "gsm8k", {"test.jsonl"}), [&](const Record& record) {
    const std::string answer = record.text("answer");
    const size_t mark = answer.rfind("####");
    if (mark == std::string::npos) record.refuse("expected \"#### NUMBER\" at the end of the answer");
    task.items.push_back(question(record.text("question"), std::string(strip(answer.substr(mark + 4)))));
  });
  const std::filesystem::path file = benchmark_file(folder / "gsm8k", {"cot_8shot.json"});
  const Record examples(file.string(), parse_json<nlohmann::ordered_json>(read_text_or_gzip(file), file.string()));
  const auto samples = examples.value().find("samples");
  if (samples == examples.value().end() || !samples->is_array()) examples.refuse("expected a list \"samples\"");
  for (const auto& sample : *samples) {
    const Record record(file.string() + ": samples", sample);
    task.examples.push_back(question(record.text("question"), record.text("target")));
  }
  task.default_shots = std::ssize(task.examples);
  return task;
}

}  // namespace focus
