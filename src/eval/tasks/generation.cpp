#include "eval/tasks/generation.h"

#include "base/error.h"
#include "eval/tasks/answers.h"
#include "generate/generator.h"
#include "generate/text_stream.h"

namespace focus {

bool run_generation(const CausalLM& model, AttentionMethod& method, const Tokenizer& tokenizer, const Task& task,
                    const std::vector<size_t>& chosen, const PromptOptions& prompts, const TaskOptions& options,
                    const RequestEncoder& encoder, const std::function<bool(int64_t, int64_t)>& progress,
                    TaskScores& scores) {
  const int64_t context = options.context.value_or(model.config().max_positions);
  const int64_t room = context - task.max_new_tokens;
  if (room < 1) fail("{} generates {} tokens, but the model's context is {}", task.name, task.max_new_tokens, context);
  if (!method.is_causal()) fail("method {} reads later tokens: it cannot generate", method.name());
  GenerateOptions generation;
  generation.max_new_tokens = task.max_new_tokens;
  generation.sampling.temperature = 0;
  generation.stop_ids = options.stop_ids;
  for (const std::string& stop : task.stops) {
    const auto id = tokenizer.id_of(stop);
    if (id && tokenizer.is_special(*id)) generation.stop_ids.push_back(*id);
  }
  PairCount pairs;
  for (size_t done = 0; done < chosen.size(); ++done) {
    const TaskItem& item = task.items[chosen[done]];
    std::vector<int32_t> ids = encoder.encode(item_prompt(task, chosen[done], prompts, options.book));
    const bool truncated = std::ssize(ids) > room;
    if (truncated) ids.erase(ids.begin(), ids.end() - room);
    scores.begin_item(item.group, std::ssize(ids), truncated);
    TextStream stream(tokenizer, ids, task.stops);
    bool stopped = false;
    const GenerateResult result = generate(model, method, {ids}, generation, [&](int64_t, int32_t id) {
      stream.push(id);
      stopped = progress && !progress(static_cast<int64_t>(done), std::ssize(chosen));
      return !stopped && !stream.stopped();
    });
    if (stopped) return false;
    pairs.kept += result.prefill_pairs.kept + result.decode_pairs.kept;
    pairs.causal += result.prefill_pairs.causal + result.decode_pairs.causal;
    const std::string text(before_stops(tokenizer.decode(result.rows[0].ids), task.stops));
    const std::string strict = strict_answer(text), flexible = flexible_answer(text);
    const bool strict_right = answers_match(strict, item.choices[0]);
    const bool flexible_right = answers_match(flexible, item.choices[0]);
    scores.add("acc", strict_right);
    scores.add("flexible", flexible_right);
    scores.end_item({{"index", chosen[done]},
                     {"text", text},
                     {"strict_answer", strict},
                     {"flexible_answer", flexible},
                     {"reference", item.choices[0]},
                     {"acc", static_cast<int>(strict_right)},
                     {"flexible", static_cast<int>(flexible_right)}});
    if (progress && !progress(static_cast<int64_t>(done + 1), std::ssize(chosen))) return false;
  }
  scores.set_pairs(pairs);
  return true;
}

}  // namespace focus
