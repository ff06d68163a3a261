#include "eval/tasks/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "eval/tasks/reading.h"
#include "eval/tasks/requests.h"

namespace focus {
namespace {

using testing::HasSubstr;

Tokenizer stories() {
  return Tokenizer::load(std::filesystem::path(FOCUS_SOURCE_DIR) / "data/models/stories260K");
}

Task five_questions() {
  Task task;
  task.name = "five";
  for (int i = 0; i < 5; ++i) {
    TaskItem item;
    item.preamble = "Start. ";
    item.context = fmt::format("Q{}:", i);
    item.choices = {fmt::format("right{}", i), "wrong"};
    task.items.push_back(item);
  }
  return task;
}

TEST(Prompts, TakeExamplesFromTheOtherItems) {
  const Task task = five_questions();
  const PromptOptions options{.shots = 4, .seed = 3};
  const std::string prompt = item_prompt(task, 2, options, nullptr);
  EXPECT_TRUE(prompt.starts_with("Start. Q"));
  EXPECT_TRUE(prompt.ends_with("\n\nQ2:"));
  for (const int other : {0, 1, 3, 4}) EXPECT_THAT(prompt, HasSubstr(fmt::format("Q{0}: right{0}\n\n", other)));
  EXPECT_EQ(prompt, item_prompt(task, 2, options, nullptr));
  EXPECT_THROW(item_prompt(task, 2, {.shots = 5}, nullptr), UsageError);
  EXPECT_EQ(item_prompt(task, 2, {}, nullptr), "Start. Q2:");
}

TEST(Prompts, TakeGivenExamplesInOrder) {
  Task task = five_questions();
  task.examples = {task.items[4], task.items[3]};
  EXPECT_EQ(item_prompt(task, 0, {.shots = 2, .seed = 9}, nullptr), "Start. Q4: right4\n\nQ3: right3\n\nQ0:");
}

TEST(BookText, GivesWholeWordsOfAboutTheLengthAskedFor) {
  const Tokenizer tokenizer = stories();
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("word{} ", i);
  const BookText book(tokenizer, text, 100, "a book");
  const std::string one = book.stretch(1, 0, 100), other = book.stretch(1, 1, 100);
  EXPECT_NE(one, other);
  EXPECT_EQ(one, book.stretch(1, 0, 100));
  EXPECT_TRUE(one.starts_with("word"));
  EXPECT_THAT(text, HasSubstr(" " + one + " "));
  EXPECT_NEAR(static_cast<double>(tokenizer.encode(one, false).size()), 100, 16);
  EXPECT_THAT(text, HasSubstr(book.stretch(1, 0, 1'000'000)));
  EXPECT_GT(book.stretch(1, 0, 1'000'000).size(), text.size() - 20);
  EXPECT_THROW(BookText(tokenizer, "short", 100, "a book"), Error);
}

TEST(Requests, MoveSpacesToTheContinuation) {
  const Tokenizer tokenizer = stories();
  const RequestEncoder encoder(tokenizer, 1, 64);
  const LikelihoodRequest request = encoder.pair("Once upon a \n", "time");
  EXPECT_EQ(request.ids, tokenizer.encode("Once upon a \ntime", true));
  EXPECT_EQ(request.scored, std::ssize(request.ids) - std::ssize(tokenizer.encode("Once upon a", true)));
  EXPECT_FALSE(request.truncated);
}

TEST(Requests, PutTheFirstTokenBeforeATextWithoutContext) {
  const Tokenizer tokenizer = stories();
  const LikelihoodRequest request = RequestEncoder(tokenizer, 1, 64).pair("", " time");
  EXPECT_EQ(request.ids.front(), 1);
  EXPECT_EQ(request.scored, std::ssize(tokenizer.encode(" time", false)));
  EXPECT_THROW(RequestEncoder(tokenizer, std::nullopt, 64).pair("", " time"), Error);
}

TEST(Requests, LoseTheLeftPartOfALongContext) {
  const Tokenizer tokenizer = stories();
  const std::string context = "Once upon a time there was a little girl named Lily";
  const LikelihoodRequest whole = RequestEncoder(tokenizer, 1, 64).pair(context, " who");
  const LikelihoodRequest cut = RequestEncoder(tokenizer, 1, 5).pair(context, " who");
  EXPECT_TRUE(cut.truncated);
  EXPECT_EQ(cut.ids, std::vector<int32_t>(whole.ids.end() - 6, whole.ids.end()));
  EXPECT_EQ(cut.scored, whole.scored);
  EXPECT_THROW(RequestEncoder(tokenizer, 1, 5).pair("Once", " " + context), Error);
}

TEST(Requests, CutARunningTextIntoPiecesThatScoreEveryTokenOnce) {
  const Tokenizer tokenizer = stories();
  const std::string text = "Once upon a time there was a little girl named Lily.";
  const std::vector<int32_t> ids = tokenizer.encode(text, true);
  std::vector<int32_t> scored;
  for (const LikelihoodRequest& piece : RequestEncoder(tokenizer, 1, 4).rolling(text)) {
    EXPECT_EQ(std::ssize(piece.ids), 5);
    scored.insert(scored.end(), piece.ids.end() - piece.scored, piece.ids.end());
  }
  EXPECT_EQ(scored, ids);
}

TEST(Reading, NamesTheLineAtFault) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "focus_tasks_reading";
  std::filesystem::create_directories(folder / "lambada");
  const auto refused = [&](const std::string& content) {
    std::ofstream(folder / "lambada/test.jsonl") << content;
    try {
      read_task("lambada", folder);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused("{\"text\": \"a b\"}\n"), "");
  EXPECT_THAT(refused("{\"text\": \"a b\"}\n{\"text\": \"a\"\n"), HasSubstr("test.jsonl: line 2: not valid JSON"));
  EXPECT_THAT(refused("{\"text\": 5}\n"), HasSubstr("line 1: \"text\" is 5, expected text"));
  EXPECT_THAT(refused("{}\n"), HasSubstr("line 1: expected a field \"text\""));
  EXPECT_THAT(refused("[]\n"), HasSubstr("line 1: expected a JSON object"));
  EXPECT_THAT(refused("{\"text\": \"one\"}\n"), HasSubstr("line 1: expected a text of two words or more"));
  EXPECT_THAT(refused("\n"), HasSubstr("no item of lambada"));
  std::filesystem::remove_all(folder);
  EXPECT_THAT(refused(""), HasSubstr("expected a file lambada_test.jsonl or test.jsonl"));
}

}  // namespace
}  // namespace focus
