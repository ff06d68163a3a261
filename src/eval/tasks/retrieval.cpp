#include "eval/tasks/retrieval.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "data/split_mix.h"

namespace focus {

namespace {

constexpr std::array<std::string_view, 24> kKeys = {"Amsterdam", "Berlin", "Bombay", "Boston",   "Cairo",    "Chicago",
                                                    "Delhi",     "Dublin", "Geneva", "Havana",   "Helsinki", "Istanbul",
                                                    "Lisbon",    "London", "Madrid", "Montreal", "Moscow",   "Nairobi",
                                                    "Oslo",      "Paris",  "Prague", "Rome",     "Tokyo",    "Vienna"};

/// Tokens that an item may be short of the length.
constexpr int64_t kSlack = 31;

struct Needle {
  std::string key;
  std::string number;
  double depth = 0;
};

std::string phrase(const Needle& needle) {
  return "The magic number of " + needle.key + " is";
}

/// Different keys with numbers of seven digits; the first is the one asked for.
std::vector<Needle> draw_needles(SplitMix& random, int64_t keys, double depth) {
  std::array<std::string_view, kKeys.size()> names = kKeys;
  std::vector<Needle> needles;
  for (size_t i = 0; i < static_cast<size_t>(keys); ++i) {
    std::swap(names[i], names[i + random.below(names.size() - i)]);
    const uint64_t number = 1'000'000 + random.below(9'000'000);
    const double own = static_cast<double>(random.below(1000)) / 1000;
    needles.push_back({std::string(names[i]), std::to_string(number), i == 0 ? depth : own});
  }
  return needles;
}

/// The place between two sentences that is nearest to a share `depth` of the text, or between two words where no
/// sentence ends within a twentieth of the text from there.
size_t place_at(std::string_view text, double depth) {
  const auto wanted = static_cast<size_t>(depth * static_cast<double>(text.size()));
  const auto distance = [&](size_t at) { return at > wanted ? at - wanted : wanted - at; };
  size_t word = 0, sentence = 0;
  bool near = false;
  for (size_t at = text.find(' '); at != std::string_view::npos; at = text.find(' ', at + 1)) {
    const size_t after = at + 1;
    if (distance(after) < distance(word)) word = after;
    const char before = at > 0 ? text[at - 1] : ' ';
    if ((before != '.' && before != '!' && before != '?') || distance(after) > text.size() / 20) continue;
    if (!near || distance(after) < distance(sentence)) sentence = after;
    near = true;
  }
  return near ? sentence : word;
}

/// The text with its needles, the question, and the depth at which the first needle came to stand.
TaskItem compose(const std::string& filler, const std::vector<Needle>& needles) {
  std::vector<std::pair<size_t, size_t>> places;  // (position in the filler, needle)
  for (size_t n = 0; n < needles.size(); ++n) places.emplace_back(place_at(filler, needles[n].depth), n);
  std::sort(places.begin(), places.end());
  TaskItem item;
  size_t done = 0;
  for (const auto& [place, n] : places) {
    item.context += filler.substr(done, place - done);
    if (n == 0) item.depth = static_cast<double>(place) / static_cast<double>(std::max<size_t>(filler.size(), 1));
    item.context += phrase(needles[n]) + " " + needles[n].number + ". ";
    done = place;
  }
  item.context += filler.substr(done) + "\n\nQuestion: What is the magic number of " + needles[0].key +
                  "?\nAnswer: " + phrase(needles[0]);
  item.choices = {needles[0].number};
  return item;
}

}  // namespace

Task make_retrieval(const std::string& name, const BookText& book, const Tokenizer& tokenizer,
                    const RetrievalOptions& options) {
  if (options.keys > std::ssize(kKeys)) fail_usage("{} keys, but there are names for {}", options.keys, kKeys.size());
  Task task;
  task.name = name;
  task.kind = TaskKind::kContinuation;
  SplitMix seeds(options.seed);
  for (int64_t i = 0; i < options.items; ++i) {
    SplitMix random(seeds.next());
    const double depth = (static_cast<double>(i) + 0.5) / static_cast<double>(options.items);
    const std::vector<Needle> needles = draw_needles(random, options.keys, depth);
    const auto tokens = [&](const TaskItem& item) {
      return std::ssize(tokenizer.encode(item.context + task.delimiter + item.choices[0], true));
    };
    int64_t filler = options.length - tokens(compose("", needles));
    if (filler < 1) {
      fail_usage("{} of {} tokens: the sentences and the question alone have {}", name, options.length,
                 options.length - filler);
    }
    // Joining texts changes their tokens a little: a few rounds find a length that fits.
    for (int64_t round = 0; round < 16; ++round) {
      TaskItem item = compose(book.stretch(options.seed, i, std::max<int64_t>(filler, 1)), needles);
      const int64_t rest = options.length - tokens(item);
      if (rest >= 0 && rest <= kSlack) {
        task.items.push_back(std::move(item));
        break;
      }
      filler += rest - (rest < 0 ? 0 : kSlack / 2);
    }
    require(std::ssize(task.items) == i + 1, "{}: no text of {} tokens could be made for item {}", name, options.length,
            i);
  }
  return task;
}

}  // namespace focus
