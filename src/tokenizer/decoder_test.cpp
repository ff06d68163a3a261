#include "tokenizer/decoder.h"

#include <gtest/gtest.h>

#include "tokenizer/test_files.h"

namespace focus {
namespace {

using nlohmann::json;

// The tokens that come out, each ended by '|'.
class Recorder : public TokenSink {
 public:
  void text(std::string_view fragment) override { out += fragment; }
  void end_token() override { out += '|'; }
  void finish() override { ++finished; }
  std::string out;
  int finished = 0;
};

std::string decoded(const json& component, const std::vector<std::string>& tokens) {
  const std::unique_ptr<Decoder> decoder = make_decoder(test_node(component));
  Recorder recorder;
  const std::unique_ptr<TokenSink> sink = decoder->connect(recorder);
  for (const std::string& token : tokens) {
    sink->text(token);
    sink->end_token();
  }
  sink->finish();
  EXPECT_EQ(recorder.finished, 1);
  return recorder.out;
}

const std::string kBad = "\xEF\xBF\xBD";

TEST(Decoder, ByteLevelJoinsBytes) {
  EXPECT_EQ(decoded({{"type", "ByteLevel"}}, {"\xC4\xA0", "\xC3\x83", "\xC2\xA9"}), " \xC3\xA9|");
  EXPECT_EQ(decoded({{"type", "ByteLevel"}}, {"\xC3\x83", "a"}), kBad + "a|");
  EXPECT_EQ(decoded({{"type", "ByteLevel"}}, {"a", "\xC3\x83"}), "a" + kBad + "|");
}

TEST(Decoder, ByteFallbackTurnsRuns) {
  const json component = {{"type", "ByteFallback"}};
  EXPECT_EQ(decoded(component, {"a", "<0xC3>", "<0xA9>", "b"}), "a|\xC3\xA9|b|");
  EXPECT_EQ(decoded(component, {"<0xC3>", "<0xA9>", "<0xC3>"}), kBad + "|" + kBad + "|" + kBad + "|")
      << "a run that is not UTF-8 as a whole";
  EXPECT_EQ(decoded(component, {"<0xZZ>", "<0x4>", "<0x41>"}), "<0xZZ>|<0x4>|A|");
}

TEST(Decoder, StripTakesFromEveryToken) {
  const json component = {{"type", "Strip"}, {"content", "_"}, {"start", 1}, {"stop", 2}};
  EXPECT_EQ(decoded(component, {"__a___", "_", "b_c", ""}), "_a_||b_c||");
}

TEST(Decoder, MetaspaceDropsTheFirstSpaces) {
  json component = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}};
  EXPECT_EQ(decoded(component, {"_a", "_b", "c"}), "a| b|c|");
  component["prepend_scheme"] = "never";
  EXPECT_EQ(decoded(component, {"_a", "_b"}), " a| b|");
}

TEST(Decoder, SequenceOfLlama) {
  const json component = {{"type", "Sequence"},
                          {"decoders",
                           {{{"type", "Replace"}, {"pattern", {{"String", "_"}}}, {"content", " "}},
                            {{"type", "ByteFallback"}},
                            {{"type", "Fuse"}},
                            {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  EXPECT_EQ(decoded(component, {"__a", "<0x41>", "_b"}), " aA b|");
  EXPECT_EQ(decoded(component, {}), "|");
}

TEST(Decoder, UnknownTypeIsNamed) {
  const json component = {{"type", "WordPiece"}};
  EXPECT_EQ(error_of([&] { make_decoder(test_node(component)); }).substr(0, 57),
            "t.json: a decoder of type 'WordPiece' is not supported (k");
}

}  // namespace
}  // namespace focus
