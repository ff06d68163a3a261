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
                     std::vector<std::string>* pieces = nullptr) {
  const std::vector<int32_t> prompt = tokenizer().encode("Once", true);
  TextStream stream(tokenizer(), prompt, stops);
  std::string all;
  std::vector<int32_t> ids = tokenizer().encode("Once" + text, true);
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

TEST(TextStream, RefusesAnEmptyStopString) {
  EXPECT_THROW(streamed("x", {""}), UsageError);
}

}  // namespace
}  // namespace focus
