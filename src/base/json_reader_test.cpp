#include "base/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/error.h"
#include "base/files.h"

namespace focus {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string nested(int64_t depth) {
  return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
}

std::string error(const std::string& text) {
  try {
    parse_json(text, "a.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(JsonReader, DepthIsBounded) {
  EXPECT_EQ(error(nested(kMaxJsonDepth)), "no error");
  EXPECT_EQ(error(nested(kMaxJsonDepth + 1)), "a.json: JSON nested more than 100 levels deep at byte 101 of 202");
  EXPECT_THAT(error("{\"a\": 1,\n \"b\": " + nested(2'000'000)), HasSubstr("levels deep at line 2, column 106"));
  EXPECT_EQ(error("\"" + nested(500) + "\\\"" + nested(500) + "\""), "no error");
  std::string wide = "[";
  for (int i = 0; i < 1000; ++i) wide += "[],{},";
  EXPECT_EQ(error(wide + "0]"), "no error");
  EXPECT_THROW(parse_json<nlohmann::ordered_json>(nested(200), "a.json"), Error);
}

TEST(JsonReader, ErrorsSayWhereInOurWords) {
  EXPECT_EQ(parse_json("{\"b\": [1, 2]}", "a.json")["b"][1], 2);
  EXPECT_THAT(error("{\"a\": 1,\n \"b\": x}"),
              AllOf(StartsWith("a.json: not valid JSON at line 2, column 7: "), HasSubstr("invalid literal")));
  EXPECT_THAT(error("# Focus"), StartsWith("a.json: not valid JSON at byte 1 of 7: "));
  EXPECT_THAT(error("{\"a\""), AllOf(HasSubstr("at byte 4 of 4"), HasSubstr("expected ':'")));
  EXPECT_EQ(error(" \n"), "a.json: empty, expected JSON");
  EXPECT_THAT(error("[1e999]"), HasSubstr("a.json: not valid JSON (number overflow"));
  for (const char* text : {"#", "[1e999]", "{\"a\": \"\xff\"}", "[1, ]"}) {
    EXPECT_THAT(error(text), Not(HasSubstr("exception"))) << text;
  }
  const std::string long_error = error("[\"" + std::string(100'000, 'x') + "\n\"]");
  EXPECT_THAT(long_error, AllOf(HasSubstr("..."), SizeIs(testing::Lt(400))));
}

TEST(JsonReader, FilesMustBeRegularAndHoldAnObject) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "focus_json_reader";
  std::filesystem::create_directories(folder);
  const auto refused = [](const std::filesystem::path& file) -> std::string {
    try {
      read_json_object(file);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  write_file_atomically(folder / "a.json", "[1]");
  EXPECT_THAT(refused(folder / "a.json"), EndsWith("a.json: the top level is not a JSON object"));
  EXPECT_THAT(refused(folder / "none.json"), HasSubstr("none.json: No such file"));
  std::filesystem::remove(folder / "fifo.json");
  ASSERT_EQ(::mkfifo((folder / "fifo.json").c_str(), 0600), 0);
  EXPECT_THAT(refused(folder / "fifo.json"), EndsWith("fifo.json: not a regular file"));
}

TEST(JsonReader, ExcerptsAreShort) {
  EXPECT_EQ(json_excerpt(nlohmann::json({1, "a"})), "[1,\"a\"]");
  EXPECT_THAT(json_excerpt(nlohmann::json(std::string(5000, 'x'))), AllOf(SizeIs(103), EndsWith("...")));
  EXPECT_EQ(json_excerpt(nlohmann::json("\xff")), "\"\\ufffd\"");
}

}  // namespace
}  // namespace focus
