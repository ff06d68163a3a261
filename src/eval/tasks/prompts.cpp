#include "eval/tasks/prompts.h"

#include <algorithm>

#include "base/error.h"
#include "base/python_text.h"
#include "data/split_mix.h"

namespace focus {

namespace {

/// A generator of its own for every (seed, item, purpose).
SplitMix generator(uint64_t seed, size_t item, uint64_t purpose) {
  SplitMix mix(seed);
  SplitMix second(mix.next() + item);
  return SplitMix(second.next() + purpose);
}

constexpr uint64_t kExamples = 1, kStretch = 2;

std::vector<const TaskItem*> choose_examples(const Task& task, size_t item, const PromptOptions& options) {
  std::vector<const TaskItem*> pool;
  const auto refuse = [&] {
    fail_usage("--shots {}: {} has only {} other items to take examples from", options.shots, task.name, pool.size());
  };
  if (!task.examples.empty()) {
    for (const TaskItem& example : task.examples) pool.push_back(&example);
    if (options.shots > std::ssize(pool)) refuse();
    pool.resize(static_cast<size_t>(options.shots));
    return pool;
  }
  for (size_t i = 0; i < task.items.size(); ++i) {
    if (i != item && task.items[i].group == task.items[item].group) pool.push_back(&task.items[i]);
  }
  if (options.shots > std::ssize(pool)) refuse();
  SplitMix random = generator(options.seed, item, kExamples);
  for (size_t i = 0; i < static_cast<size_t>(options.shots); ++i) {
    std::swap(pool[i], pool[i + random.below(pool.size() - i)]);
  }
  pool.resize(static_cast<size_t>(options.shots));
  return pool;
}

}  // namespace

BookText::BookText(const Tokenizer& tokenizer, const std::string& text, int64_t needed, const std::string& source)
    : tokenizer_(tokenizer), ids_(tokenizer.encode(text, false)) {
  require(std::ssize(ids_) >= needed, "{}: {} tokens of text, expected at least {}", source, ids_.size(), needed);
}

std::string BookText::stretch(uint64_t seed, int64_t item, int64_t tokens) const {
  tokens = std::min<int64_t>(tokens, std::ssize(ids_));
  const auto places = static_cast<uint64_t>(std::ssize(ids_) - tokens + 1);
  const uint64_t begin = generator(seed, static_cast<size_t>(item), kStretch).below(places);
  const std::string text =
      tokenizer_.decode(std::span(ids_).subspan(static_cast<size_t>(begin), static_cast<size_t>(tokens)));
  // The first and last word may be cut, even inside a character.
  const size_t first = text.find_first_of(" \n"), last = text.find_last_of(" \n");
  if (first == std::string::npos || first >= last) return std::string(strip(text));
  return std::string(strip(text.substr(first, last - first)));
}

std::string item_prompt(const Task& task, size_t item, const PromptOptions& options, const BookText* book) {
  std::string prompt;
  if (options.prefix_tokens > 0) {
    require(book != nullptr, "a prefix needs a book");
    prompt = book->stretch(options.seed, static_cast<int64_t>(item), options.prefix_tokens) + "\n\n";
  }
  prompt += task.items[item].preamble;
  if (options.shots > 0) {
    for (const TaskItem* example : choose_examples(task, item, options)) {
      prompt += example->context + task.delimiter + example->choices[static_cast<size_t>(example->gold)] +
                task.example_separator;
    }
  }
  return prompt + task.items[item].context;
}

}  // namespace focus
