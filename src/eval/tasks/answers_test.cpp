#include "eval/tasks/answers.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <regex>

namespace focus {
namespace {

/// As the harness finds them, by regular expressions: the first match's number, and the last match of either kind.
std::string strict_by_regex(const std::string& text) {
  static const std::regex pattern("The answer is (-?[0-9.,]+)[^\\n]");
  std::smatch match;
  return std::regex_search(text, match, pattern) ? match[1].str() : "[invalid]";
}

std::string flexible_by_regex(const std::string& text) {
  static const std::regex pattern("(-?[$0-9.,]{2,})|(-?[0-9]+)");
  std::string last = "[invalid]";
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) last = it->str();
  return last;
}

rc::Gen<std::string> pieces() {
  const auto piece =
      rc::gen::element<std::string>("The answer is ", "-", "$", "5", "12", ".", ",", " ", "\n", "x", "é");
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(piece), [](const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& one : all) text += one;
    return text;
  });
}

RC_GTEST_PROP(Answers, AreThoseOfTheRegularExpressions, ()) {
  const std::string text = *pieces();
  RC_ASSERT(strict_answer(text) == strict_by_regex(text));
  RC_ASSERT(flexible_answer(text) == flexible_by_regex(text));
}

TEST(Answers, OfASolution) {
  const std::string text = "She had 3 + 15. The answer is 18.\n\nThe answer is 20 dollars, not -7";
  EXPECT_EQ(strict_answer(text), "18");
  EXPECT_EQ(flexible_answer(text), "-7");
  EXPECT_EQ(strict_answer("The answer is $18."), "[invalid]");
  EXPECT_EQ(flexible_answer("It costs $1,050.00."), "$1,050.00.");
}

TEST(Answers, MatchButForSignsOfMoney) {
  EXPECT_TRUE(answers_match("$1,050.", "1050"));
  EXPECT_TRUE(answers_match("so #### 18", "18"));
  EXPECT_FALSE(answers_match("18.0", "18"));
  EXPECT_FALSE(answers_match("[invalid]", "18"));
}

TEST(Answers, EndBeforeTheFirstStop) {
  EXPECT_EQ(before_stops("one Q: two </s>", {"</s>", "Q:"}), "one ");
  EXPECT_EQ(before_stops("one", {"Q:"}), "one");
}

}  // namespace
}  // namespace focus
