#include <algorithm>

#include "base/error.h"
#include "eval/tasks/families.h"
#include "eval/tasks/task.h"

namespace focus {

const std::vector<TaskEntry>& file_tasks() {
  static const std::vector<TaskEntry> entries = {
      {"lambada", read_lambada},
      {"hellaswag", read_hellaswag},
      {"arc-easy", read_arc_easy},
      {"piqa", read_piqa},
      {"truthfulqa-mc1", read_truthfulqa_mc1},
      {"blimp", read_blimp},
      {"wikitext2", read_wikitext2},
      {"gsm8k", read_gsm8k},
  };
  return entries;
}

namespace {

const TaskEntry* find(const std::string& name) {
  const auto entry =
      std::find_if(file_tasks().begin(), file_tasks().end(), [&](const TaskEntry& e) { return e.name == name; });
  return entry == file_tasks().end() ? nullptr : &*entry;
}

}  // namespace

bool is_file_task(const std::string& name) {
  return find(name) != nullptr;
}

Task read_task(const std::string& name, const std::filesystem::path& folder) {
  const TaskEntry* entry = find(name);
  require(entry != nullptr, "there is no benchmark {}", name);
  Task task = entry->read(folder);
  task.name = name;
  require(!task.items.empty(), "{}: no item of {} in it", folder.string(), name);
  return task;
}

}  // namespace focus
