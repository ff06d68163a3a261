#pragma once

#include <filesystem>

#include "eval/tasks/task.h"

namespace focus {

// Readers of the benchmarks, for the registry. Prompts and formulas: docs/tasks.md. All throw Error as TaskReader says.

Task read_lambada(const std::filesystem::path& folder);         // lambada.cpp
Task read_hellaswag(const std::filesystem::path& folder);       // choice_tasks.cpp
Task read_arc_easy(const std::filesystem::path& folder);        // choice_tasks.cpp
Task read_piqa(const std::filesystem::path& folder);            // choice_tasks.cpp
Task read_truthfulqa_mc1(const std::filesystem::path& folder);  // choice_tasks.cpp
Task read_blimp(const std::filesystem::path& folder);           // blimp.cpp
Task read_wikitext2(const std::filesystem::path& folder);       // wikitext.cpp
Task read_gsm8k(const std::filesystem::path& folder);           // gsm8k.cpp

}  // namespace focus
