#include "generate/text_stream.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"

namespace focus {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = Tokenizer::load(std::filesystem::path(FOCUS_SOURCE_DIR) / "data/models/stories260K");
  return loaded;
}

/// All that comes out for a text, and the pieces as they came.
std::string streamed(const std::string& text, const std::vector<std::string>& stops,
                     std::vector<std::string>* pieces = nullptr, const std::string& before = "Once") {
  const std::vector<int32_t> prompt = tokenizer().encode(before, true);
  TextStream stream(tokenizer(), prompt, stops);
  std::string all;
  std::vector<int32_t> ids = tokenizer().encode(before + text, true);
  ids.erase(ids.begin(), ids.begin() + std::ssize(prompt));
  for (const int32_t id : ids) {
    const std::string piece = stream.push(id);
    if (pieces != nullptr) pieces->push_back(piece);
    all += piece;
  }
  return all + stream.finish();
}

TEST(TextStream, WithoutStopsEverythingComes) {
  EXPECT_EQ(streamed(" upon a time, é 🦙 there", {}), " upon a time, é 🦙 there");
}

TEST(TextStream, CutsBeforeTheFirstStopString) {
  EXPECT_EQ(streamed(" upon a time there was", {"was", "time"}), " upon a ");
  EXPECT_EQ(streamed(" upon a time\n\nthere", {"\n\n"}), " upon a time");
  EXPECT_EQ(streamed(" upon a", {"zebra"}), " upon a");
  EXPECT_EQ(streamed(" aab", {"ab"}), " a");
}

TEST(TextStream, HoldsBackWhatMayBeginAStopStringAndGivesItAtTheEnd) {
  std::vector<std::string> pieces;
  EXPECT_EQ(streamed(" a time to", {"time too long"}, &pieces), " a time to");
  std::string before_end;
  for (const std::string& piece : pieces) before_end += piece;
  EXPECT_EQ(before_end, " a ");
}

TEST(TextStream, BytesAtTheEndOfThePromptAreNotOutput) {
  for (const std::string before : {"Once\n", "Once\n\n", "Once 🦙", "Once \xEF\xBF\xBD"}) {
    EXPECT_EQ(streamed(" upon", {}, nullptr, before), " upon") << before;
    EXPECT_EQ(streamed("\n upon é\n", {}, nullptr, before), "\n upon é\n") << before;
    EXPECT_EQ(streamed("", {}, nullptr, before), "") << before;
  }
  EXPECT_EQ(streamed(" upon a time", {"\n"}, nullptr, "Once\n"), " upon a time");
  EXPECT_EQ(streamed("\n upon a time", {"\n"}, nullptr, "Once\n"), "");
}

TEST(TextStream, BytesThatSpoilTheEndOfThePromptAreAllThatComes) {
  TextStream stream(tokenizer(), tokenizer().encode("Once\n", true), {});
  std::string all = stream.push(*tokenizer().id_of("<0xF0>"));
  all += stream.finish();
  EXPECT_EQ(all, "\xEF\xBF\xBD");
}

TEST(TextStream, CompletesACharacterThatThePromptBegins) {
  std::vector<int32_t> prompt = tokenizer().encode("Once 🦙", true);
  std::vector<int32_t> rest(prompt.end() - 2, prompt.end());
  prompt.resize(prompt.size() - 2);
  TextStream stream(tokenizer(), prompt, {});
  std::string all = stream.push(rest[0]);
  all += stream.push(rest[1]);
  all += stream.finish();
  EXPECT_EQ(all, "🦙");
}

TEST(TextStream, RefusesAnEmptyStopString) {
  EXPECT_THROW(streamed("x", {""}), UsageError);
}

}  // namespace
}  // namespace focus
