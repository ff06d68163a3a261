#include "data/text_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <zlib.h>

#include "base/error.h"
#include "base/files.h"

namespace focus {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextSource : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "focus_text_source_test";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& content) {
    fs::create_directories((folder_ / name).parent_path());
    if (name.ends_with(".gz")) {
      gzFile out = gzopen((folder_ / name).c_str(), "wb");
      gzwrite(out, content.data(), static_cast<unsigned>(content.size()));
      gzclose(out);
    } else {
      write_file_atomically(folder_ / name, content);
    }
    return folder_ / name;
  }

  /// Reads with the warnings on standard error captured into log_.
  TextCorpus read(const fs::path& path, const TextOptions& options = {}) {
    testing::internal::CaptureStderr();
    TextCorpus corpus = read_texts(path, options);
    log_ = testing::internal::GetCapturedStderr();
    return corpus;
  }

  std::string error(const fs::path& path) {
    try {
      read_texts(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  fs::path folder_;
  std::string log_;
};

TEST_F(TextSource, TextIsUnwrappedUnlessAskedNotTo) {
  const fs::path file = write("a.txt", "\xEF\xBB\xBFone\r\ntwo\r\n\r\nthree\n");
  EXPECT_THAT(read(file).documents, ElementsAre("one two\n\nthree\n"));
  EXPECT_THAT(read(file, {.keep_line_wraps = true}).documents, ElementsAre("one\ntwo\n\nthree\n"));
  EXPECT_EQ(log_, "");
}

TEST_F(TextSource, JsonLinesKeepTheirLineBreaks) {
  const fs::path file =
      write("a.jsonl", "{\"text\": \"one\\ntwo\", \"id\": 3}\n\n{\"text\": \" \"}\n{\"text\": \"\\u00fc\"}");
  const TextCorpus corpus = read(file);
  EXPECT_THAT(corpus.documents, ElementsAre("one\ntwo", "\xC3\xBC"));
  EXPECT_EQ(corpus.blank_skipped, 2);
  EXPECT_EQ(corpus.bytes, 9);
  EXPECT_THAT(log_, HasSubstr("2 blank"));
}

TEST_F(TextSource, FoldersAreSortedAndUnpacked) {
  write("b.txt", "b");
  write("a.txt.gz", "a");
  write(".hidden.txt", "hidden");
  write(".git/d.txt", "hidden");
  write("sub/c.jsonl.gz", "{\"text\":\"c\"}\n");
  write("README.md", "not text data");
  const TextCorpus corpus = read(folder_);
  EXPECT_THAT(corpus.documents, ElementsAre("a", "b", "c"));
  EXPECT_EQ(corpus.files.size(), 3u);
}

TEST_F(TextSource, InvalidUtf8IsCountedAndWarnedOnce) {
  write("a.txt", "x\xFFy\xC3");
  write("b.txt", "\xE2\x82z");
  const TextCorpus corpus = read(folder_);
  EXPECT_THAT(corpus.documents, ElementsAre("x\xEF\xBF\xBDy\xEF\xBF\xBD", "\xEF\xBF\xBDz"));
  EXPECT_EQ(corpus.invalid_utf8, 3);
  EXPECT_THAT(log_, HasSubstr("3 invalid UTF-8"));
  EXPECT_EQ(std::count(log_.begin(), log_.end(), '\n'), 1);
}

TEST_F(TextSource, ErrorsNameTheFile) {
  EXPECT_THAT(error(folder_ / "none.txt"), HasSubstr("none.txt: No such file"));
  EXPECT_THAT(error(write("a.pdf", "x")), AllOf(HasSubstr("a.pdf"), HasSubstr("expected a name that ends in .txt")));
  EXPECT_THAT(error(folder_), HasSubstr("no .txt"));
  EXPECT_THAT(error(write("empty.txt", "")), HasSubstr("empty.txt: the file is empty"));
  EXPECT_THAT(error(write("empty.txt.gz", "")), HasSubstr("empty.txt.gz: the file is empty"));
  write_file_atomically(folder_ / "plain.txt.gz", "text");
  EXPECT_THAT(error(folder_ / "plain.txt.gz"), HasSubstr("plain.txt.gz: not gzip data"));
  EXPECT_THAT(error(write("blank.txt", " \n\n")), HasSubstr("blank.txt: no text"));
  EXPECT_THAT(error(write("a.jsonl", "{\"text\": \"a\"}\n{oops\n")), HasSubstr("a.jsonl: line 2: not valid JSON"));
  EXPECT_THAT(error(write("b.jsonl", "\n[1]\n")), HasSubstr("b.jsonl: line 2: expected an object"));
  EXPECT_THAT(error(write("c.jsonl", "{\"text\": 1}")), HasSubstr("c.jsonl: line 1: expected an object"));
  EXPECT_THAT(error(write("d.jsonl", "{\"txt\": \"a\"}")), HasSubstr("d.jsonl: line 1: expected an object"));
}

TEST(Unwrap, JoinsLinesAndKeepsParagraphs) {
  EXPECT_EQ(unwrap_lines(""), "");
  EXPECT_EQ(unwrap_lines("a"), "a");
  EXPECT_EQ(unwrap_lines("a\nb"), "a b");
  EXPECT_EQ(unwrap_lines("a  \n  b\n"), "a b\n");
  EXPECT_EQ(unwrap_lines("\n\n\na\n \t\n\n\nb\nc\n\n"), "a\n\nb c\n");
  EXPECT_EQ(unwrap_lines("  Title\n\n    Indented\n    again"), "Title\n\nIndented again");
}

TEST(Unwrap, Idempotent) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = *rc::gen::container<std::string>(rc::gen::element(' ', '\n', '\n', '\t', 'a', 'b'));
    const std::string once = unwrap_lines(text);
    RC_ASSERT(unwrap_lines(once) == once);
  }));
}

TEST(RepairUtf8, FollowsTheUnicodeRecommendation) {
  auto repair = [](std::string_view text) {
    int64_t count = 0;
    const std::string out = repair_utf8(text, count);
    std::string shown;
    for (size_t i = 0; i < out.size(); ++i) {
      const bool replacement = out.compare(i, 3, "\xEF\xBF\xBD") == 0;
      shown += replacement ? '?' : out[i];
      if (replacement) i += 2;
    }
    return fmt::format("{}{}", shown, count);
  };
  EXPECT_EQ(repair("plain \xC3\xBC \xF0\x9F\x98\x80"),
            "plain \xC3\xBC \xF0\x9F\x98\x80"
            "0");
  EXPECT_EQ(repair("\xC0\xAF"), "??2");
  EXPECT_EQ(repair("\xE0\x80\xAF"), "???3");
  EXPECT_EQ(repair("\xED\xA0\x80"), "???3");
  EXPECT_EQ(repair("\xF4\x91\x92\x93"), "????4");
  EXPECT_EQ(repair("\xF0\x90\x80"
                   "a"),
            "?a1");
  // Example of the Unicode standard, table 3-11.
  EXPECT_EQ(repair("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                   "A"),
            "????A4");
  EXPECT_EQ(repair(std::string_view("a\0b", 3)), std::string("a\0b0", 4));
}

TEST(RepairUtf8, ValidTextStaysAndResultIsValid) {
  EXPECT_TRUE(rc::check([] {
    const auto text = *rc::gen::arbitrary<std::string>();
    int64_t count = 0, again = 0;
    const std::string once = repair_utf8(text, count);
    RC_ASSERT(repair_utf8(once, again) == once);
    RC_ASSERT(again == 0);
    RC_ASSERT((count == 0) == (once == text));
  }));
}

}  // namespace
}  // namespace focus
