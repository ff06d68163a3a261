#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "eval/tasks/requests.h"
#include "eval/tasks/runner.h"
#include "eval/tasks/summary.h"

namespace focus {

/// Generates greedily for each chosen item until a stop string or token and scores the number in the text, by the
/// strict and the flexible rule (answers.h). A prompt too long for the context less max_new_tokens loses its left part.
/// Returns false when `progress` ended it. Throws Error when nothing fits.
bool run_generation(const CausalLM& model, AttentionMethod& method, const Tokenizer& tokenizer, const Task& task,
                    const std::vector<size_t>& chosen, const PromptOptions& prompts, const TaskOptions& options,
                    const RequestEncoder& encoder, const std::function<bool(int64_t, int64_t)>& progress,
                    TaskScores& scores);

}  // namespace focus
