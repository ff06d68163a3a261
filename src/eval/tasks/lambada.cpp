#include "eval/tasks/families.h"
#include "eval/tasks/reading.h"

namespace focus {

// The last word, split off at the last space, is to be predicted.
Task read_lambada(const std::filesystem::path& folder) {
  Task task;
  task.kind = TaskKind::kContinuation;
  for_each_record(benchmark_file(folder / "lambada", {"lambada_test.jsonl", "test.jsonl"}), [&](const Record& record) {
    const std::string text = record.text("text");
    const size_t space = text.rfind(' ');
    if (space == std::string::npos) record.refuse("expected a text of two words or more");
    TaskItem item;
    item.context = text.substr(0, space);
    item.choices = {text.substr(space + 1)};
    task.items.push_back(std::move(item));
  });
  return task;
}

}  // namespace focus
