#include <algorithm>

#include "base/error.h"
#include "eval/tasks/families.h"
#include "eval/tasks/reading.h"

namespace focus {

// Every file is a paradigm of sentence pairs, of which the first, the grammatical one, should be likelier.
Task read_blimp(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  const fs::path paradigms = folder / "blimp";
  std::vector<fs::path> files;
  if (fs::is_directory(paradigms)) {
    for (const auto& entry : fs::directory_iterator(paradigms)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")) files.push_back(entry.path());
    }
  }
  require(!files.empty(), "{}: expected a file PARADIGM.jsonl (or .gz) in it", paradigms.string());
  std::sort(files.begin(), files.end());
  Task task;
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    for_each_record(file, [&](const Record& record) {
      TaskItem item;
      item.group = name.substr(0, name.find(".jsonl"));
      item.choices = {record.text("sentence_good"), record.text("sentence_bad")};
      task.items.push_back(std::move(item));
    });
  }
  return task;
}

}  // namespace focus
